package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"runtime"
	"syscall"
	"time"

	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

// timed is how long one pod took over all nodes: making the allocator, as the scheduler does for every pod, and asking it
// about each node, one after the other. Reading the scenario is not in it.
type timed struct {
	Made    int64  `json:"made"`
	CPU     int64  `json:"cpu"` // of all threads, the collection of garbage included
	Asked   int64  `json:"asked"`
	Reached int    `json:"reached"` // nodes that were answered, which is all unless the time was up
	Fits    int    `json:"fits"`
	Devices string `json:"devices"` // digest of what was picked on each node
}

// Compiled selectors outlive a pod in the scheduler, too.
var timingCache = map[*scenario]*cel.Cache{}

func measure(s *scenario) answer {
	features := allOn
	if s.Features != nil {
		features = *s.Features
	}
	cache := timingCache[s]
	if cache == nil {
		cache = cel.NewCache(100, cel.Features{EnableConsumableCapacity: features.ConsumableCapacity, EnableListTypeAttributes: features.ListTypeAttributes})
		clear(timingCache)
		timingCache[s] = cache
	}
	state := allocatedState(s.Allocated)
	runtime.GC()
	found := &timed{}
	out := answer{Name: s.Name, Timed: found}
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(s.TimeoutMs)*time.Millisecond)
	defer cancel()
	before := processorTime()
	begin := time.Now()
	allocator, err := structured.NewAllocator(ctx, features, state, classLister(s.Classes), s.Slices, cache)
	made := time.Now()
	if err == nil {
		err = askAll(ctx, allocator, s, found)
	}
	found.Asked = time.Since(made).Nanoseconds()
	found.Made = made.Sub(begin).Nanoseconds()
	found.CPU = processorTime() - before
	if err != nil && ctx.Err() == nil {
		out.Error = err.Error()
	}
	return out
}

func askAll(ctx context.Context, allocator structured.Allocator, s *scenario, found *timed) error {
	digest := sha256.New()
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

func processorTime() int64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return usage.Utime.Nano() + usage.Stime.Nano()
}
