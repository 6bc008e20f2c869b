package main

import (
	"context"
	"fmt"

	celgo "github.com/google/cel-go/cel"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/utils/ptr"
)

type celAnswer struct {
	CompileError string                       `json:"compileError,omitempty"`
	RunError     string                       `json:"runError,omitempty"`
	Panic        string                       `json:"panic,omitempty"`
	Match        bool                         `json:"match"`
	Value        *resourceapi.DeviceAttribute `json:"value,omitempty"`
	Cost         uint64                       `json:"cost"`
	MaxCost      uint64                       `json:"maxCost,omitempty"`
}

// evaluate answers a selector or, for kind "derived", the expression of a derived attribute. The worst case is
// estimated on request only, because that takes longer than all the rest.
func evaluate(s *scenario) (out answer) {
	found := &celAnswer{}
	out = answer{Name: s.Name, Cel: found}
	defer func() {
		if reason := recover(); reason != nil {
			found.Panic = fmt.Sprint(reason)
		}
	}()
	features := cel.Features{EnableConsumableCapacity: true, EnableListTypeAttributes: true}
	if s.Features != nil {
		features = cel.Features{EnableConsumableCapacity: s.Features.ConsumableCapacity, EnableListTypeAttributes: s.Features.ListTypeAttributes}
	}
	derived := s.Kind == "derived"
	options := cel.Options{DisableCostEstimation: !s.Estimate, DerivedAttribute: derived}
	if s.Admitted {
		options.EnvType = ptr.To(environment.NewExpressions)
	}
	compiled := cel.GetCompiler(features).CompileCELExpression(s.Expression, options)
	if compiled.Error != nil {
		found.CompileError = compiled.Error.Error()
		return out
	}
	if s.Estimate {
		found.MaxCost = compiled.MaxCost
	}
	if s.Device == nil {
		return out
	}
	var details *celgo.EvalDetails
	var err error
	if derived {
		found.Value, details, err = compiled.EvaluateDerivedAttribute(context.Background(), *s.Device)
	} else {
		found.Match, details, err = compiled.DeviceMatches(context.Background(), *s.Device)
	}
	if err != nil {
		found.RunError = err.Error()
	}
	if details != nil && details.ActualCost() != nil {
		found.Cost = *details.ActualCost()
	}
	return out
}
