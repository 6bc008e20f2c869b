package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	cdi "tags.cncf.io/container-device-interface/specs-go"
)

const (
	// The first version with annotations.
	cdiVersion = "0.6.0"
	// What a CDI file says beside the variables: its claim, and for each device which one it is and whether the claim has
	// it for itself alone (no share of it, no access of an administrator).
	claimAnnotation     = "dra-extender.io/claim"
	deviceAnnotation    = "dra-extender.io/device"
	exclusiveAnnotation = "dra-extender.io/exclusive"
)

var notInNames = regexp.MustCompile("[^A-Za-z0-9]")

// file is where a claim's CDI file lies: the folder's files are the driver's memory.
func (p plugin) file(claim types.UID) string {
	return filepath.Join(p.cdi, p.driver+"-"+string(claim)+".json")
}

// describe returns the CDI file of an allocated claim and what the kubelet is told of it: one CDI device for each result
// of this driver, with one variable. The number in its name counts the results of all drivers from 0.
func (p plugin) describe(claim *resourceapi.ResourceClaim) (cdi.Spec, []kubeletplugin.Device) {
	spec := cdi.Spec{
		Version:     cdiVersion,
		Kind:        p.driver + "/device",
		Annotations: map[string]string{claimAnnotation: claim.Namespace + "/" + claim.Name},
	}
	devices := []kubeletplugin.Device{}
	for number, result := range claim.Status.Allocation.Devices.Results {
		if result.Driver != p.driver {
			continue
		}
		device, name := result.Pool+"/"+result.Device, fmt.Sprintf("%s-%d", claim.UID, number)
		value, exclusive := device, true
		if result.ShareID != nil {
			value, exclusive = value+"#"+string(*result.ShareID), false
		}
		if result.AdminAccess != nil && *result.AdminAccess {
			value, exclusive = value+"!admin", false
		}
		request := strings.ToUpper(notInNames.ReplaceAllString(result.Request, "_"))
		spec.Devices = append(spec.Devices, cdi.Device{
			Name:           name,
			Annotations:    map[string]string{deviceAnnotation: device, exclusiveAnnotation: fmt.Sprint(exclusive)},
			ContainerEdits: cdi.ContainerEdits{Env: []string{fmt.Sprintf("DRA_%s_%d=%s", request, number, value)}},
		})
		devices = append(devices, kubeletplugin.Device{
			Requests:     []string{result.Request},
			PoolName:     result.Pool,
			DeviceName:   result.Device,
			ShareID:      result.ShareID,
			CDIDeviceIDs: []string{spec.Kind + "=" + name},
		})
	}
	return spec, devices
}

// refuseTaken returns an error that names the claim which has prepared one of the devices for itself alone.
func (p plugin) refuseTaken(claim types.UID, wanted cdi.Spec) error {
	paths, err := filepath.Glob(filepath.Join(p.cdi, p.driver+"-*.json"))
	if err != nil {
		return err
	}
	taken := map[string]string{}
	for _, path := range paths {
		if path == p.file(claim) {
			continue
		}
		var other cdi.Spec
		if err := readStrictly(path, &other); err != nil {
			return err
		}
		for _, device := range exclusive(other) {
			taken[device] = other.Annotations[claimAnnotation]
		}
	}
	for _, device := range exclusive(wanted) {
		if holder, found := taken[device]; found {
			return fmt.Errorf("device %s is prepared for claim %s", device, holder)
		}
	}
	return nil
}

func exclusive(spec cdi.Spec) []string {
	var devices []string
	for _, each := range spec.Devices {
		if each.Annotations[exclusiveAnnotation] == "true" {
			devices = append(devices, each.Annotations[deviceAnnotation])
		}
	}
	return devices
}

// write makes the file appear complete: the container runtime watches the folder. A claim without a device here needs none.
func (p plugin) write(claim types.UID, spec cdi.Spec) error {
	if len(spec.Devices) == 0 {
		return nil
	}
	text, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	path := p.file(claim)
	unfinished := path + ".unfinished"
	if err := os.WriteFile(unfinished, text, 0o644); err != nil {
		return err
	}
	return os.Rename(unfinished, path)
}
