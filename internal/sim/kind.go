package sim

import (
	"errors"
	"fmt"
	"strings"

	"github.com/containerd/nri/pkg/api"
	"github.com/opencontainers/runtime-spec/specs-go"

	nriplugin "github.com/trimtab/trimtab/internal/attach/nri"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/runtimes"
)

// Kind is the runtime that the embedded one behaves like: how it calls itself,
// and what it refuses. The zero Kind is the embedded runtime's own, which behaves
// like the newest containerd and takes everything. What a kind refuses is written
// here a second time, from the runtimes' own messages, so that a wrong row in the
// table that the agent reads is seen.
type Kind struct {
	Name    string // over the CRI
	NRIName string // over NRI, where that is another one
	Version string
	// NRIVersion is the release that it states over NRI, where that is another.
	NRIVersion string
	// least is the least memory limit a container is created with, and tooLow the
	// message about a lower one; -1 is one.
	least  int64
	tooLow string
	// updates: the same holds when a container is updated.
	updates bool
	// negative is the message about a memory limit below 0 in a kubelet's update.
	negative string
	// strict: an update beside a creation that fails, fails the creation.
	strict bool
	// configless: verbose statuses have no configuration, and the resources of a
	// pod are an annotation of its spec.
	configless bool
}

// The kinds that are known, and what they are taken from.
var (
	// CRIO is as recorded from CRI-O 1.36.3.
	CRIO = Kind{
		Name: "cri-o", Version: "1.36.3", least: 12582912, tooLow: "set memory limit %d too low; should be at least 12582912 bytes",
		negative: "memory validation failed: invalid memory limit: %d bytes (cannot be negative)", strict: true, configless: true,
	}
	// ISulad is iSulad 2.1 (src/daemon/modules/spec/verify.c).
	ISulad = Kind{
		Name: "iSulad", NRIName: "v2", Version: "2.1.5", NRIVersion: "2.0.0-beta.2+unknown",
		least: 4194304, tooLow: "Minimum memory limit allowed is 4MB (%d)", updates: true,
	}
	// Containerd17 takes the values that the newest does, and fewer fields.
	Containerd17 = Kind{Name: "containerd", Version: "v1.7.24"}
)

// Kinds lists them.
func Kinds() []Kind { return []Kind{CRIO, ISulad, Containerd17} }

// String is the kind as people write it.
func (k Kind) String() string { return strings.TrimSpace(k.Name + " " + k.Version) }

// onNRI is how it introduces itself to plugins.
func (k Kind) onNRI() (name, version string) {
	switch {
	case k.Name == "":
		return nriplugin.Embedded, nriplugin.Library
	case k.NRIName != "":
		return k.NRIName, k.NRIVersion
	}
	return k.Name, k.Version
}

// Runtime is the kind as the table of runtimes knows it, over NRI or the CRI.
func (k Kind) Runtime(overNRI bool) runtimes.Runtime {
	if !overNRI {
		return runtimes.Of(k.Name, k.Version, runtimes.Version{})
	}
	return nriplugin.Runtime(k.onNRI())
}

// Configless reports whether a verbose status has no configuration.
func (k Kind) Configless() bool { return k.configless }

// created refuses a container with a spec that the runtime does not take.
func (k Kind) created(spec *specs.Spec) error {
	if m := spec.Linux.Resources.Memory; m != nil && m.Limit != nil && k.least > 0 && *m.Limit != 0 && *m.Limit < k.least {
		return fmt.Errorf(k.tooLow, *m.Limit) //nolint:err113 // the runtime's own message
	}
	return nil
}

// asked refuses a kubelet's update, changed by a plugin or not.
func (k Kind) asked(r *api.LinuxResources) error {
	limit := r.GetMemory().GetLimit().GetValue()
	switch {
	case limit < 0 && k.negative != "":
		return fmt.Errorf(k.negative, limit) //nolint:err113 // the runtime's own message
	case k.updates:
		return k.pushed(r)
	}
	return nil
}

// pushed refuses a plugin's own update.
func (k Kind) pushed(r *api.LinuxResources) error {
	limit := r.GetMemory().GetLimit().GetValue()
	if k.updates && limit != 0 && limit < k.least {
		return fmt.Errorf(k.tooLow, limit) //nolint:err113 // the runtime's own message
	}
	return nil
}

// beside fails a creation with whose answer an update came that failed.
func (k Kind) beside(failed []*api.ContainerUpdate) error {
	if k.strict && len(failed) > 0 {
		return errors.New("an update beside the creation failed: container " + failed[0].GetContainerId())
	}
	return nil
}

// Sent is something that was sent to the runtime.
type Sent struct {
	By        runtimes.Way
	Call      runtimes.Call
	Resources *api.LinuxResources
}

// Values are its numbers, as the table of runtimes has them.
func (s Sent) Values() []lifecycle.Value {
	var out []lifecycle.Value
	add := func(f lifecycle.Field, n int64) {
		if n != 0 {
			out = append(out, lifecycle.Value{Field: f, Int: n})
		}
	}
	c := s.Resources.GetCpu()
	add(lifecycle.CPUShares, int64(c.GetShares().GetValue())) //nolint:gosec // of tests
	add(lifecycle.CPUQuota, c.GetQuota().GetValue())
	add(lifecycle.CPUPeriod, int64(c.GetPeriod().GetValue())) //nolint:gosec // of tests
	add(lifecycle.MemoryLimit, s.Resources.GetMemory().GetLimit().GetValue())
	for key, text := range s.Resources.GetUnified() {
		out = append(out, lifecycle.Value{Field: lifecycle.Unified, Key: key, Text: text})
	}
	return out
}

// Note tells the observer what was sent.
func (r *Runtime) Note(by runtimes.Way, c runtimes.Call, res *api.LinuxResources) {
	if r.o.Sent != nil && res != nil {
		r.o.Sent(Sent{by, c, res})
	}
}

// Kind is the runtime that it behaves like.
func (r *Runtime) Kind() Kind { return r.o.Kind }

// noteUpdates tells the observer of what a plugin sent for containers, for one
// with a request of the kubelet's.
func (r *Runtime) noteUpdates(updates []*api.ContainerUpdate, requested string) {
	for _, u := range updates {
		call := runtimes.Push
		if u.GetContainerId() == requested {
			call = runtimes.Request
		}
		r.Note(runtimes.NRI, call, u.GetLinux().GetResources())
	}
}
