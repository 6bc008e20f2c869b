package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"runtime"
	"time"

	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

// timed is how long one pod took over all nodes, once for each round: making the allocator, as the scheduler does for
// every pod, and asking it about each node, one after the other. Reading the scenario is not in it.
type timed struct {
	Made    []int64 `json:"made"`
	Asked   []int64 `json:"asked"`
	Reached int     `json:"reached"` // nodes that were answered, which is all unless the time was up
	Fits    int     `json:"fits"`
	Devices string  `json:"devices"` // digest of what was picked on each node
}

func measure(s *scenario) answer {
	out := answer{Name: s.Name, Timed: &timed{}}
	features := allOn
	if s.Features != nil {
		features = *s.Features
	}
	// What the scheduler keeps between pods: compiled selectors, and which devices are allocated.
	cache := cel.NewCache(100, cel.Features{EnableConsumableCapacity: features.ConsumableCapacity, EnableListTypeAttributes: features.ListTypeAttributes})
	state := allocatedState(s.Allocated)
	for range max(1, s.Rounds) {
		runtime.GC()
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(s.TimeoutMs)*time.Millisecond)
		begin := time.Now()
		allocator, err := structured.NewAllocator(ctx, features, state, classLister(s.Classes), s.Slices, cache)
		made := time.Now()
		if err == nil {
			err = askAll(ctx, allocator, s, out.Timed)
		}
		out.Timed.Asked = append(out.Timed.Asked, time.Since(made).Nanoseconds())
		out.Timed.Made = append(out.Timed.Made, made.Sub(begin).Nanoseconds())
		expired := ctx.Err() != nil
		cancel()
		if err != nil && !expired {
			out.Error = err.Error()
		}
		if err != nil {
			break
		}
	}
	return out
}

func askAll(ctx context.Context, allocator structured.Allocator, s *scenario, found *timed) error {
	digest := sha256.New()
	found.Reached, found.Fits = 0, 0
	for _, node := range s.Nodes {
		results, err := allocator.Allocate(ctx, node, s.Claims)
		if err != nil {
			return err
		}
		found.Reached++
		if results == nil {
			continue
		}
		found.Fits++
		for _, result := range results {
			for _, device := range result.Devices.Results {
				fmt.Fprintf(digest, "%s %s/%s/%s\n", node.Name, device.Driver, device.Pool, device.Device)
			}
		}
	}
	found.Devices = hex.EncodeToString(digest.Sum(nil))
	return nil
}
