// runc stands before the real runc (runc.real beside it) and takes two things out of the bundle that it is given, which
// need more of a machine than the tests do:
//
//   - linux.seccomp: the kubelet wants a profile for each sandbox, and a runc without libseccomp refuses one.
//   - linux.resources: limits want controllers of cgroups, which a machine may not delegate.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

func main() {
	self, err := os.Executable()
	if err != nil {
		fail(err)
	}
	if bundle := bundle(os.Args[1:]); bundle != "" {
		if err := simplify(filepath.Join(bundle, "config.json")); err != nil {
			fail(err)
		}
	}
	program := filepath.Join(filepath.Dir(self), "runc.real")
	fail(syscall.Exec(program, append([]string{program}, os.Args[1:]...), os.Environ()))
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "runc:", err)
	os.Exit(127)
}

// bundle is the value of --bundle or -b; empty for commands that have none.
func bundle(arguments []string) string {
	for number, argument := range arguments {
		if (argument == "--bundle" || argument == "-b") && number+1 < len(arguments) {
			return arguments[number+1]
		}
		if value, found := strings.CutPrefix(argument, "--bundle="); found {
			return value
		}
	}
	return ""
}

func simplify(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber() // limits have 64 bits, which a float64 rounds
	var config map[string]any
	if err := decoder.Decode(&config); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if linux, ok := config["linux"].(map[string]any); ok {
		delete(linux, "seccomp")
		delete(linux, "resources")
	}
	text, err = json.Marshal(config)
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}
