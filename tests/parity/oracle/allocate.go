package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/dynamic-resource-allocation/structured/schedulerapi"
)

type nodeAnswer struct {
	Node     string                         `json:"node"`
	Results  []resourceapi.AllocationResult `json:"results"`
	Fits     bool                           `json:"fits"`
	Error    string                         `json:"error,omitempty"`
	NodeOnly bool                           `json:"nodeOnly,omitempty"`
	TimedOut bool                           `json:"timedOut,omitempty"`
	Nanos    int64                          `json:"nanos"`
}

type classLister []*resourceapi.DeviceClass

func (l classLister) List() ([]*resourceapi.DeviceClass, error) { return l, nil }
func (l classLister) Get(name string) (*resourceapi.DeviceClass, error) {
	for _, class := range l {
		if class.Name == name {
			return class, nil
		}
	}
	return nil, fmt.Errorf("device class %q not found", name)
}

var allOn = structured.Features{
	AdminAccess: true, CompatibilityGroups: true, ConsumableCapacity: true, DerivedAttributes: true,
	DeviceBindingAndStatus: true, DeviceTaints: true, FractionalCapacityRange: true, ListTypeAttributes: true,
	OptionalNodeOperations: true, PartitionableDevices: true, PrioritizedList: true,
}

func allocatedState(claims []*resourceapi.ResourceClaim) structured.AllocatedState {
	state := structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	for _, claim := range claims {
		if claim.Status.Allocation == nil {
			continue
		}
		for _, result := range claim.Status.Allocation.Devices.Results {
			if result.AdminAccess != nil && *result.AdminAccess {
				continue
			}
			id := structured.MakeDeviceID(result.Driver, result.Pool, result.Device)
			if result.ShareID != nil {
				state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, result.ShareID))
				capacity := map[resourceapi.QualifiedName]resource.Quantity{}
				for name, quantity := range result.ConsumedCapacity {
					capacity[name] = quantity
				}
				state.AggregatedCapacity.Insert(schedulerapi.NewDeviceConsumedCapacity(id, capacity))
				continue
			}
			state.AllocatedDevices.Insert(id)
		}
	}
	return state
}

func allocate(s *scenario) answer {
	out := answer{Name: s.Name}
	features := allOn
	if s.Features != nil {
		features = *s.Features
	}
	ctx := context.Background()
	cache := cel.NewCache(100, cel.Features{EnableConsumableCapacity: features.ConsumableCapacity, EnableListTypeAttributes: features.ListTypeAttributes})
	allocator, err := structured.NewAllocator(ctx, features, allocatedState(s.Allocated), classLister(s.Classes), s.Slices, cache)
	if err != nil {
		out.Error = err.Error()
		return out
	}
	timeout := 10 * time.Second
	if s.TimeoutMs > 0 {
		timeout = time.Duration(s.TimeoutMs) * time.Millisecond
	}
	for _, node := range s.Nodes {
		nctx, cancel := context.WithTimeout(ctx, timeout)
		start := time.Now()
		results, err := allocator.Allocate(nctx, node, s.Claims)
		a := nodeAnswer{Node: node.Name, Nanos: time.Since(start).Nanoseconds()}
		cancel()
		if err != nil {
			a.Error = err.Error()
			a.NodeOnly = errors.Is(err, structured.ErrFailedAllocationOnNode)
			a.TimedOut = errors.Is(err, context.DeadlineExceeded)
		} else if results != nil || len(s.Claims) == 0 {
			a.Fits = true
			a.Results = results
		}
		out.Nodes = append(out.Nodes, a)
	}
	return out
}
