package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

// slice is what the file holds of one ResourceSlice; the helper library adds driver, node, pool and generation.
type slice struct {
	Devices                []resourceapi.Device            `json:"devices"`
	SharedCounters         []resourceapi.CounterSet        `json:"sharedCounters"`
	PerDeviceNodeSelection *bool                           `json:"perDeviceNodeSelection"`
	PartitionTypeAttribute *resourceapi.FullyQualifiedName `json:"partitionTypeAttribute"`
	SkipNodeOperations     []resourceapi.SkipNodeOperation `json:"skipNodeOperations"`
}

// readPools returns what the file describes. An unknown field is an error: the API server would never see it.
func readPools(path string) (resourceslice.DriverResources, error) {
	resources := resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{}}
	var pools map[string][]slice
	if err := readStrictly(path, &pools); err != nil {
		return resources, err
	}
	for name, slices := range pools {
		pool := resourceslice.Pool{}
		for _, each := range slices {
			pool.Slices = append(pool.Slices, resourceslice.Slice(each))
		}
		resources.Pools[name] = pool
	}
	return resources, nil
}

func readStrictly(path string, into any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
