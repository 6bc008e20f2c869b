// driver is a DRA driver without hardware. It publishes the pools that a JSON file describes, and tells each container
// through CDI which devices it got, as environment variables DRA_<REQUEST>_<n>=<pool>/<device>[#shareID][!admin].
//
// On SIGHUP it reads the pools again; what is wrong with them it logs and keeps the last good ones. How it treats the
// kubelet's calls, a second file says (behaviour.go). What it prepared lies in the CDI files alone, so that it goes on
// where it was killed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
)

type options struct {
	driver, node, kubeconfig, pools, behaviour, kubelet, cdi string
}

func main() {
	var o options
	flag.StringVar(&o.driver, "driver", "", "name of the driver")
	flag.StringVar(&o.node, "node", "", "name of the node")
	flag.StringVar(&o.kubeconfig, "kubeconfig", "", "how to reach the API server")
	flag.StringVar(&o.pools, "pools", "", "JSON file {POOL: [SLICE, ...]}, a slice with devices, sharedCounters and so on as in the API; read again on SIGHUP")
	flag.StringVar(&o.behaviour, "behaviour", "", "JSON file that says how calls are treated; read at each call, may be missing")
	flag.StringVar(&o.kubelet, "kubelet", "/run/kubelet", "the kubelet's root folder")
	flag.StringVar(&o.cdi, "cdi", "/run/cdi", "folder for CDI files")
	flag.Parse()
	if err := run(o); err != nil {
		slog.Error("driver", "error", err)
		os.Exit(1)
	}
}

func run(o options) error {
	for _, needed := range []string{o.driver, o.node, o.kubeconfig, o.pools} {
		if needed == "" {
			return errors.New("-driver, -node, -kubeconfig and -pools are needed")
		}
	}
	resources, err := readPools(o.pools)
	if err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return fmt.Errorf("read the kubeconfig: %w", err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	data := filepath.Join(o.kubelet, "plugins", o.driver)
	for _, folder := range []string{data, o.cdi} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
	}
	// Before the first publication, so that no signal that follows it is lost.
	again := make(chan os.Signal, 1)
	signal.Notify(again, syscall.SIGHUP)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	helper, err := kubeletplugin.Start(ctx, plugin{driver: o.driver, cdi: o.cdi, behaviour: o.behaviour},
		kubeletplugin.DriverName(o.driver),
		kubeletplugin.NodeName(o.node),
		kubeletplugin.KubeClient(client),
		kubeletplugin.PluginDataDirectoryPath(data),
		kubeletplugin.RegistrarDirectoryPath(filepath.Join(o.kubelet, "plugins_registry")),
		// The devices of this driver have no health to report.
		kubeletplugin.HealthService(false),
	)
	if err != nil {
		return fmt.Errorf("start the plugin: %w", err)
	}
	defer helper.Stop()
	if err := helper.PublishResources(ctx, resources); err != nil {
		return fmt.Errorf("publish the pools: %w", err)
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-again:
			resources, err := readPools(o.pools)
			if err == nil {
				err = helper.PublishResources(ctx, resources)
			}
			slog.Info("pools read again", "error", err)
		}
	}
}
