package main

import (
	"context"
	"errors"
	"io/fs"
	"time"
)

// behaviour says how the driver treats the kubelet's calls from now on. The zero value is a driver that always succeeds.
type behaviour struct {
	// PrepareError and UnprepareError are what a call answers for each claim concerned; nothing is done for it then.
	PrepareError   string `json:"prepareError"`
	UnprepareError string `json:"unprepareError"`
	// PrepareDelaySeconds passes before a claim concerned is prepared. Calls of one driver wait for each other.
	PrepareDelaySeconds float64 `json:"prepareDelaySeconds"`
	// Claim is the one concerned, as NAME or NAMESPACE/NAME; empty for all.
	Claim string `json:"claim"`
}

// readBehaviour returns what the file says, and the zero value where there is no file.
func readBehaviour(path string) (behaviour, error) {
	var result behaviour
	if path == "" {
		return result, nil
	}
	err := readStrictly(path, &result)
	if errors.Is(err, fs.ErrNotExist) {
		return result, nil
	}
	return result, err
}

func (b behaviour) concerns(namespace, name string) bool {
	return b.Claim == "" || b.Claim == name || b.Claim == namespace+"/"+name
}

// beforePrepare waits as told, and returns the error told.
func (b behaviour) beforePrepare(ctx context.Context, namespace, name string) error {
	if !b.concerns(namespace, name) {
		return nil
	}
	if b.PrepareError != "" {
		return errors.New(b.PrepareError)
	}
	select {
	case <-time.After(time.Duration(b.PrepareDelaySeconds * float64(time.Second))):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (b behaviour) beforeUnprepare(namespace, name string) error {
	if b.UnprepareError != "" && b.concerns(namespace, name) {
		return errors.New(b.UnprepareError)
	}
	return nil
}
