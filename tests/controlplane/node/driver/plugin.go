package main

import (
	"context"
	"errors"
	"log/slog"
	"os"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
)

// plugin is what the kubelet calls, through the helper library, one call at a time.
type plugin struct {
	driver, cdi, behaviour string
}

var _ kubeletplugin.DRAPlugin = plugin{}

// PrepareResourceClaims writes one CDI file for each claim. A device that another claim has prepared for itself alone is
// refused: a driver is the last that can keep two workloads from one device.
func (p plugin) PrepareResourceClaims(ctx context.Context, claims []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	behaviour, err := readBehaviour(p.behaviour)
	if err != nil {
		return nil, err
	}
	results := map[types.UID]kubeletplugin.PrepareResult{}
	for _, claim := range claims {
		result := kubeletplugin.PrepareResult{}
		if result.Err = behaviour.beforePrepare(ctx, claim.Namespace, claim.Name); result.Err == nil {
			result.Devices, result.Err = p.prepare(claim)
		}
		results[claim.UID] = result
		slog.Info("prepare", "claim", claim.Namespace+"/"+claim.Name, "uid", claim.UID, "error", result.Err)
	}
	return results, nil
}

func (p plugin) prepare(claim *resourceapi.ResourceClaim) ([]kubeletplugin.Device, error) {
	if claim.Status.Allocation == nil {
		return nil, errors.New("the claim has no allocation")
	}
	spec, devices := p.describe(claim)
	if err := p.refuseTaken(claim.UID, spec); err != nil {
		return nil, err
	}
	return devices, p.write(claim.UID, spec)
}

// UnprepareResourceClaims removes the CDI files; that there is none is no error.
func (p plugin) UnprepareResourceClaims(_ context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	behaviour, err := readBehaviour(p.behaviour)
	if err != nil {
		return nil, err
	}
	results := map[types.UID]error{}
	for _, claim := range claims {
		err := behaviour.beforeUnprepare(claim.Namespace, claim.Name)
		if err == nil {
			err = os.Remove(p.file(claim.UID))
		}
		if os.IsNotExist(err) {
			err = nil
		}
		results[claim.UID] = err
		slog.Info("unprepare", "claim", claim.Namespace+"/"+claim.Name, "uid", claim.UID, "error", err)
	}
	return results, nil
}

// HandleError logs what goes wrong in the background; the helper library retries.
func (p plugin) HandleError(_ context.Context, err error, message string) {
	slog.Error(message, "error", err)
}

// WatchHealthStatus has nothing to say, and is not asked.
func (p plugin) WatchHealthStatus(context.Context, chan<- kubeletplugin.DeviceHealthReport) error {
	return kubeletplugin.ErrHealthNotSupported
}
