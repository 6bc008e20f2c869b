// Command oracle answers scenarios with the decisions of the released upstream allocator and CEL compiler: one JSON
// object per input line, one per output line, in the same order. Arguments name the allocator's implementations to use.
package main

import (
	"bufio"
	"encoding/json"
	"io"
	"os"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/klog/v2"
)

// scenario is a question: kind allocate (the default), timing (and again, which
// repeats the last timing), cel or derived.
type scenario struct {
	Name      string                       `json:"name"`
	Kind      string                       `json:"kind"`
	Features  *structured.Features         `json:"features,omitempty"`
	Nodes     []*v1.Node                   `json:"nodes"`
	Slices    []*resourceapi.ResourceSlice `json:"slices"`
	Classes   []*resourceapi.DeviceClass   `json:"classes"`
	Allocated []*resourceapi.ResourceClaim `json:"allocated"`
	Claims    []*resourceapi.ResourceClaim `json:"claims"`
	TimeoutMs int                          `json:"timeoutMs,omitempty"`

	Expression string      `json:"expression,omitempty"`
	Device     *cel.Device `json:"device,omitempty"`
	Estimate   bool        `json:"estimate,omitempty"`
	Admitted   bool        `json:"admitted,omitempty"` // as the API server compiles new expressions: features hide what they gate
}

type answer struct {
	Name  string       `json:"name"`
	Nodes []nodeAnswer `json:"nodes,omitempty"`
	Cel   *celAnswer   `json:"cel,omitempty"`
	Timed *timed       `json:"timed,omitempty"`
	Error string       `json:"error,omitempty"`
}

var lastTimed *scenario

func respond(line []byte) answer {
	var s scenario
	if err := json.Unmarshal(line, &s); err != nil {
		return answer{Error: "bad scenario: " + err.Error()}
	}
	if s.Kind == "cel" || s.Kind == "derived" {
		return evaluate(&s)
	}
	if s.Kind == "timing" {
		lastTimed = &s
	}
	if (s.Kind == "timing" || s.Kind == "again") && lastTimed != nil {
		return measure(lastTimed)
	}
	return allocate(&s)
}

func main() {
	klog.SetOutput(io.Discard)
	klog.LogToStderr(false)
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	if len(os.Args) > 1 {
		structured.EnableAllocators(os.Args[1:]...)
	}
	for {
		line, err := in.ReadBytes('\n')
		if len(line) > 1 {
			if failure := encoder.Encode(respond(line)); failure != nil {
				panic(failure)
			}
			out.Flush()
		}
		if err != nil {
			return
		}
	}
}
