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

// Kind describes the runtime that the embedded runtime imitates: its name, and the requests that it refuses. The zero
// Kind behaves like the newest containerd and refuses nothing.
//
// The refusals come from the runtimes' own messages and source code. They are independent of the agent's table of
// runtimes, so that tests detect a wrong row in that table.
type Kind struct {
	Name    string // the name that the runtime reports over the CRI
	NRIName string // the name that the runtime reports over NRI; "" for Name and Version
	Version string // the version that the runtime reports over the CRI
	// NRIVersion is the version that the runtime reports over NRI. It is used only with NRIName.
	NRIVersion string
	// minMemoryLimit is the lowest memory limit that a creation may have; 0 for none. lowLimitMessage is the error for
	// a lower limit, and also for the limit -1 (no limit).
	minMemoryLimit  int64
	lowLimitMessage string
	// limitsUpdates reports whether minMemoryLimit also applies to updates.
	limitsUpdates bool
	// negativeLimitMessage is the error for a memory limit below 0 in a kubelet's update. It is "" if the runtime
	// accepts such a limit.
	negativeLimitMessage string
	// failedUpdateFailsCreation reports how the runtime handles plugins that answer a container's creation with an
	// update of another container. If it is true and this update fails, the creation fails too.
	failedUpdateFailsCreation bool
	// statusHasNoConfig reports whether a verbose status over the CRI lacks the configuration. Such a runtime has the
	// resources of a pod in an annotation of the pod's OCI spec.
	statusHasNoConfig bool
}

// The known kinds with their sources.
var (
	// CRIO is CRI-O 1.36.3. Its behaviour was recorded from that version.
	CRIO = Kind{
		Name: "cri-o", Version: "1.36.3", minMemoryLimit: 12582912, lowLimitMessage: "set memory limit %d too low; should be at least 12582912 bytes",
		negativeLimitMessage: "memory validation failed: invalid memory limit: %d bytes (cannot be negative)", failedUpdateFailsCreation: true, statusHasNoConfig: true,
	}
	// ISulad is iSulad 2.1 (src/daemon/modules/spec/verify.c).
	ISulad = Kind{
		Name: "iSulad", NRIName: "v2", Version: "2.1.5", NRIVersion: "2.0.0-beta.2+unknown",
		minMemoryLimit: 4194304, lowLimitMessage: "Minimum memory limit allowed is 4MB (%d)", limitsUpdates: true,
	}
	// Containerd17 is containerd 1.7. It accepts the same values as the newest containerd, but fewer fields.
	Containerd17 = Kind{Name: "containerd", Version: "v1.7.24"}
)

// Kinds lists the known kinds.
func Kinds() []Kind { return []Kind{CRIO, ISulad, Containerd17} }

// String returns the name and version of the kind.
func (k Kind) String() string { return strings.TrimSpace(k.Name + " " + k.Version) }

// nriNameAndVersion returns the runtime's name and version that plugins get over NRI.
func (k Kind) nriNameAndVersion() (name, version string) {
	switch {
	case k.Name == "":
		return nriplugin.EmbeddedRuntime, nriplugin.EmbeddedRelease
	case k.NRIName != "":
		return k.NRIName, k.NRIVersion
	}
	return k.Name, k.Version
}

// Runtime returns the agent's description of this runtime. The agent derives it from the name and version that it gets
// over NRI or over the CRI.
func (k Kind) Runtime(overNRI bool) runtimes.Runtime {
	if !overNRI {
		return runtimes.Identify(k.Name, k.Version, runtimes.Version{})
	}
	return nriplugin.Runtime(k.nriNameAndVersion())
}

// StatusHasNoConfig reports whether a verbose status over the CRI lacks the configuration of the pod or container.
func (k Kind) StatusHasNoConfig() bool { return k.statusHasNoConfig }

// createError returns an error if the runtime refuses to create a container with a spec.
func (k Kind) createError(spec *specs.Spec) error {
	if m := spec.Linux.Resources.Memory; m != nil && m.Limit != nil && k.minMemoryLimit > 0 && *m.Limit != 0 && *m.Limit < k.minMemoryLimit {
		return fmt.Errorf(k.lowLimitMessage, *m.Limit) //nolint:err113 // the runtime's own message
	}
	return nil
}

// requestError returns an error if the runtime refuses the resources of a kubelet's update. Plugins may have changed
// these resources.
func (k Kind) requestError(r *api.LinuxResources) error {
	limit := r.GetMemory().GetLimit().GetValue()
	switch {
	case limit < 0 && k.negativeLimitMessage != "":
		return fmt.Errorf(k.negativeLimitMessage, limit) //nolint:err113 // the runtime's own message
	case k.limitsUpdates:
		return k.unsolicitedError(r)
	}
	return nil
}

// unsolicitedError returns an error if the runtime refuses a plugin's unsolicited update.
func (k Kind) unsolicitedError(r *api.LinuxResources) error {
	limit := r.GetMemory().GetLimit().GetValue()
	if k.limitsUpdates && limit != 0 && limit < k.minMemoryLimit {
		return fmt.Errorf(k.lowLimitMessage, limit) //nolint:err113 // the runtime's own message
	}
	return nil
}

// failedUpdateError returns an error if a container's creation must fail because of failed updates. The parameter
// failed has the updates of other containers that were in the plugins' answer to the creation and failed.
func (k Kind) failedUpdateError(failed []*api.ContainerUpdate) error {
	if k.failedUpdateFailsCreation && len(failed) > 0 {
		return errors.New("the plugins' update of container " + failed[0].GetContainerId() + " failed")
	}
	return nil
}

// SentUpdate has resources that a plugin or a CRI client sent to the runtime.
type SentUpdate struct {
	By        runtimes.Protocol // NRI for a plugin, CRI for a CRI client
	Call      runtimes.Call     // the kind of call that had the resources
	Resources *api.LinuxResources
}

// Values converts the resources to the type lifecycle.Value, which the agent uses for its decisions. It leaves out
// numbers that are 0, cpusets and huge pages.
func (s SentUpdate) Values() []lifecycle.Value {
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

// NotifySent calls Options.ResourcesSent with resources that a plugin or a CRI client sent to the runtime.
func (r *Runtime) NotifySent(by runtimes.Protocol, c runtimes.Call, res *api.LinuxResources) {
	if r.opts.ResourcesSent != nil && res != nil {
		r.opts.ResourcesSent(SentUpdate{by, c, res})
	}
}

// Kind returns the kind of runtime that the embedded runtime imitates.
func (r *Runtime) Kind() Kind { return r.opts.Kind }

// notifySentUpdates calls Options.ResourcesSent with the updates that a plugin sent. If the plugin answers the
// kubelet's update of a container, requestedID is the id of this container; otherwise it is "".
func (r *Runtime) notifySentUpdates(updates []*api.ContainerUpdate, requestedID string) {
	for _, u := range updates {
		call := runtimes.AgentUpdate
		if u.GetContainerId() == requestedID {
			call = runtimes.KubeletUpdate
		}
		r.NotifySent(runtimes.NRI, call, u.GetLinux().GetResources())
	}
}
