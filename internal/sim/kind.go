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

// Kind is the runtime that the embedded one imitates: its name, and what it refuses. The zero Kind behaves like the
// newest containerd and accepts everything. What a kind refuses is taken from the runtimes' own messages, independent
// of the agent's table, so that tests detect a wrong row in that table.
type Kind struct {
	Name    string // over the CRI
	NRIName string // over NRI, if that differs
	Version string
	// NRIVersion is the release that it reports over NRI, if that differs.
	NRIVersion string
	// least is the lowest memory limit of a creation, and tooLow the message about a lower one; -1 counts as lower.
	least  int64
	tooLow string
	// updates: the same limit applies to updates
	updates bool
	// negativeLimitMessage is the message about a memory limit below 0 in a kubelet's update.
	negativeLimitMessage string
	// strict: a failed update in the answer to a creation fails the creation
	failedUpdateFailsCreation bool
	// configless: verbose statuses have no configuration, and a pod's resources are an annotation of its spec
	statusHasNoConfig bool
}

// The known kinds with their sources.
var (
	// CRIO behaves as recorded from CRI-O 1.36.3.
	CRIO = Kind{
		Name: "cri-o", Version: "1.36.3", least: 12582912, tooLow: "set memory limit %d too low; should be at least 12582912 bytes",
		negativeLimitMessage: "memory validation failed: invalid memory limit: %d bytes (cannot be negative)", failedUpdateFailsCreation: true, statusHasNoConfig: true,
	}
	// ISulad is iSulad 2.1 (src/daemon/modules/spec/verify.c).
	ISulad = Kind{
		Name: "iSulad", NRIName: "v2", Version: "2.1.5", NRIVersion: "2.0.0-beta.2+unknown",
		least: 4194304, tooLow: "Minimum memory limit allowed is 4MB (%d)", updates: true,
	}
	// Containerd17 accepts the same values as the newest containerd, and fewer fields.
	Containerd17 = Kind{Name: "containerd", Version: "v1.7.24"}
)

// Kinds lists them.
func Kinds() []Kind { return []Kind{CRIO, ISulad, Containerd17} }

// String returns the name and version of the kind.
func (k Kind) String() string { return strings.TrimSpace(k.Name + " " + k.Version) }

// onNRI returns the name and version that plugins get.
func (k Kind) onNRI() (name, version string) {
	switch {
	case k.Name == "":
		return nriplugin.Embedded, nriplugin.Library
	case k.NRIName != "":
		return k.NRIName, k.NRIVersion
	}
	return k.Name, k.Version
}

// Runtime returns the kind's row in the table of runtimes, over NRI or the CRI.
func (k Kind) Runtime(overNRI bool) runtimes.Runtime {
	if !overNRI {
		return runtimes.Of(k.Name, k.Version, runtimes.Version{})
	}
	return nriplugin.Runtime(k.onNRI())
}

// Configless reports whether a verbose status has no configuration.
func (k Kind) Configless() bool { return k.statusHasNoConfig }

// created returns an error if the runtime refuses to create a container with a spec.
func (k Kind) created(spec *specs.Spec) error {
	if m := spec.Linux.Resources.Memory; m != nil && m.Limit != nil && k.least > 0 && *m.Limit != 0 && *m.Limit < k.least {
		return fmt.Errorf(k.tooLow, *m.Limit) //nolint:err113 // the runtime's own message
	}
	return nil
}

// requested returns an error if the runtime refuses a kubelet's update, which plugins may have changed.
func (k Kind) requested(r *api.LinuxResources) error {
	limit := r.GetMemory().GetLimit().GetValue()
	switch {
	case limit < 0 && k.negativeLimitMessage != "":
		return fmt.Errorf(k.negativeLimitMessage, limit) //nolint:err113 // the runtime's own message
	case k.updates:
		return k.unsolicitedError(r)
	}
	return nil
}

// unsolicitedError returns an error if the runtime refuses a plugin's unsolicited update.
func (k Kind) unsolicitedError(r *api.LinuxResources) error {
	limit := r.GetMemory().GetLimit().GetValue()
	if k.updates && limit != 0 && limit < k.least {
		return fmt.Errorf(k.tooLow, limit) //nolint:err113 // the runtime's own message
	}
	return nil
}

// withCreation returns an error if a failed update in the answer to a creation fails that creation.
func (k Kind) withCreation(failed []*api.ContainerUpdate) error {
	if k.failedUpdateFailsCreation && len(failed) > 0 {
		return errors.New("an update with the creation failed: container " + failed[0].GetContainerId())
	}
	return nil
}

// Sent has resources that were sent to the runtime.
type Sent struct {
	By        runtimes.Way
	Call      runtimes.Call
	Resources *api.LinuxResources
}

// Values returns its numbers as values of the table of runtimes.
func (s Sent) Values() []lifecycle.Value {
	var out []lifecycle.Value
	add := func(f lifecycle.Field, n int64) {
		if n != 0 {
			out = append(out, lifecycle.Value{Field: f, Int: n})
		}
	}
	c := s.Resources.GetCpu()
	add(lifecycle.CPUShares, int64(c.GetShares().GetValue())) //nolint:gosec // numbers of tests
	add(lifecycle.CPUQuota, c.GetQuota().GetValue())
	add(lifecycle.CPUPeriod, int64(c.GetPeriod().GetValue())) //nolint:gosec // numbers of tests
	add(lifecycle.MemoryLimit, s.Resources.GetMemory().GetLimit().GetValue())
	for key, text := range s.Resources.GetUnified() {
		out = append(out, lifecycle.Value{Field: lifecycle.Unified, Key: key, Text: text})
	}
	return out
}

// Note notifies the observer of sent resources.
func (r *Runtime) Note(by runtimes.Way, c runtimes.Call, res *api.LinuxResources) {
	if r.o.Sent != nil && res != nil {
		r.o.Sent(Sent{by, c, res})
	}
}

// Kind returns the runtime that it imitates.
func (r *Runtime) Kind() Kind { return r.o.Kind }

// noteUpdates notifies the observer of the updates that a plugin sent. requested is the container of the kubelet's
// request, if there is one.
func (r *Runtime) noteUpdates(updates []*api.ContainerUpdate, requested string) {
	for _, u := range updates {
		call := runtimes.Push
		if u.GetContainerId() == requested {
			call = runtimes.Request
		}
		r.Note(runtimes.NRI, call, u.GetLinux().GetResources())
	}
}
