package conformance

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/internal/conductor/route"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/parity"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/status"
	"github.com/trimtab/trimtab/internal/sim"
	"github.com/trimtab/trimtab/internal/sim/effective"
	"github.com/trimtab/trimtab/internal/sim/scenario"
	"github.com/trimtab/trimtab/internal/topology"
)

// Compare compares the state of a node with want, the engine's decisions for the same scenario, and lists the
// differences. The agent of the node uses the attachment a. If a container is in skipped, it may exist although the
// engine does not have it: it exists because of a declared limit of the attachment.
func Compare(a parity.Attachment, want *Outcome, skipped map[scenario.Ref]bool, r *sim.Runtime, agent status.Source) []string {
	c := comparison{a: a, want: want, r: r, agent: agent}
	for _, ref := range slices.Sorted(maps.Keys(want.Pods)) {
		c.comparePod(ref, want.Pods[ref])
	}
	there := map[scenario.Ref]string{}
	for _, i := range r.Containers() {
		there[i.Ref] = i.State
		if _, decided := want.Containers[i.Ref]; !decided && !skipped[i.Ref] && i.State != "stopped" && (a.Refuses || !want.Refused[i.Ref.Pod()]) {
			c.addNote("%s exists in the runtime, but the engine has no such container", i.Ref)
		}
	}
	for _, ref := range slices.Sorted(maps.Keys(want.Containers)) {
		if there[ref] == "" || there[ref] == "stopped" {
			c.addNote("%s is not a live container of the runtime, but the engine has this container", ref)
			continue
		}
		c.compareContainer(ref, want.Containers[ref])
	}
	return c.notes
}

// comparison collects the differences between a node and the engine's decisions.
type comparison struct {
	a     parity.Attachment // the attachment of the node's agent
	want  *Outcome          // the engine's decisions
	r     *sim.Runtime      // the runtime of the node
	agent status.Source     // the agent's status and explanations
	notes []string          // the differences
	// cookies has the core scheduling cookie of each group of containers. Its inverse is groups.
	cookies map[string]uint64
	groups  map[uint64]string
}

// checkCookie checks that each core scheduling group has its own cookie, and that containers without a group have no
// cookie.
func (c *comparison) checkCookie(ref scenario.Ref, group string, cookie uint64) {
	if c.cookies == nil {
		c.cookies, c.groups = map[string]uint64{"": 0}, map[uint64]string{0: ""}
	}
	if have, known := c.cookies[group]; known && have != cookie {
		c.addNote("%s: the container has cookie %d, but its group %q has cookie %d", ref, cookie, group, have)
	}
	if have, known := c.groups[cookie]; known && have != group {
		c.addNote("%s: the container has cookie %d of group %q, but it is in group %q", ref, cookie, have, group)
	}
	c.cookies[group], c.groups[cookie] = cookie, group
}

// addNote adds a difference.
func (c *comparison) addNote(format string, args ...any) {
	c.notes = append(c.notes, "parity: "+fmt.Sprintf(format, args...))
}

// comparePod compares the cgroup of a pod with the engine's decision.
func (c *comparison) comparePod(ref scenario.Ref, want Decision) {
	got, err := c.r.PodState(ref)
	if err != nil {
		c.addNote("%s: %v", ref, err)
		return
	}
	c.compareStates(ref, want.State, got, lifecycle.OfPod)
}

// compareContainer compares the agent's report about a container, and the container's state, with the engine's
// decision.
func (c *comparison) compareContainer(ref scenario.Ref, want Decision) {
	namespace, pod, name := ref.Names()
	reported, _ := c.agent.Explain(namespace, pod, name)
	if len(reported) != 1 {
		c.addNote("%s: the agent reports %d containers with this name, want 1", ref, len(reported))
		return
	}
	c.compareValues(ref, want, reported[0].Values)
	if !want.Running && !c.a.Refuses { // the attachment bypass sees the container only after its creation
		return
	}
	got, err := c.r.State(ref)
	if err != nil {
		c.addNote("%s: %v", ref, err)
		return
	}
	if want.Running {
		c.checkCookie(ref, want.Group, got.Cookie)
		c.compareStates(ref, want.State, got, lifecycle.OfContainer)
	}
}

// compareValues compares the values in the agent's report with a decision. Each value must be in force. If the
// attachment declares that it cannot set the field, the value must be reported as not in force.
func (c *comparison) compareValues(ref scenario.Ref, want Decision, reported []api.Value) {
	got := map[string]string{}
	for _, v := range reported {
		if v.Why.Hook == "" {
			continue
		}
		got[v.Field] = v.Value
		f := want.Fields[v.Field]
		way, _ := c.a.DeliveryOf(f, lifecycle.OfContainer)
		_, initial := want.Initial[v.Field]
		switch {
		case v.Applied:
			if way == parity.NotApplied {
				c.addNote("%s: %s is in force (%s), although the attachment declares that it cannot be", ref, v.Field, v.Channel)
			}
		case v.Note == "":
			c.addNote("%s: %s is not in force, and no reason is reported", ref, v.Field)
		case !want.Running, way == parity.AtCreation && !initial && !route.CanWriteToKernel(f):
			// In two cases a value that is not in force is no difference. Either the container does not run yet, and
			// the agent writes the value at its start. Or only a creation can set the value, and the value was decided
			// after the creation.
		case way != parity.NotApplied && !strings.Contains(v.Note, "no such file"):
			c.addNote("%s: %s is not in force (%s), although the attachment declares that it can set it", ref, v.Field, v.Note)
		}
	}
	if d := cmp.Diff(want.Values, got); d != "" {
		c.addNote("%s: decisions differ (-engine alone +%s):\n%s", ref, c.a.Name, d)
	}
}

// compareStates compares the effective state got with the state want, field by field. It skips fields that the
// attachment cannot set.
func (c *comparison) compareStates(ref scenario.Ref, want, got effective.State, of lifecycle.Scope) {
	canSet := func(f lifecycle.Field) bool {
		way, _ := c.a.DeliveryOf(f, of)
		return way != parity.NotApplied
	}
	same := func(f lifecycle.Field, what string, w, g any) {
		if d := cmp.Diff(w, g); d != "" && canSet(f) {
			c.addNote("%s: %s is %v, but the engine's decision is %v", ref, what, g, w)
		}
	}
	same(lifecycle.CPUSetCPUs, "cpus", ids(want.CPUs), ids(got.CPUs))
	same(lifecycle.CPUSetMems, "mems", ids(want.Mems), ids(got.Mems))
	same(lifecycle.CPUShares, "shares", want.Shares, got.Shares)
	same(lifecycle.CPUQuota, "quota", want.Quota, got.Quota)
	same(lifecycle.CPUPeriod, "period", want.Period, got.Period)
	same(lifecycle.MemoryLimit, "memory", want.Memory, got.Memory)
	if of == lifecycle.OfPod {
		return
	}
	same(lifecycle.Env, "env", want.Env, mapWithout(got.Env, "PATH", "HOSTNAME"))
	same(lifecycle.MountPoint, "mounts", want.Mounts, mapWithout(got.Mounts, "/proc", "/dev", "/sys", "/sys/fs/cgroup"))
	same(lifecycle.DeviceNode, "devices", sortedCopy(want.Devices), sortedCopy(got.Devices))
	same(lifecycle.CDIDevice, "CDI devices", sortedCopy(want.CDI), sortedCopy(got.CDI))
	same(lifecycle.BlockIOClass, "block I/O class", want.BlockIO, got.BlockIO)
	same(lifecycle.RDTClass, "RDT class", want.RDTClass, got.RDTClass)
	same(lifecycle.RDTGroup, "resctrl group", want.RDTGroup, got.RDTGroup)
	same(lifecycle.OOMScoreAdj, "oom_score_adj", want.OOM, got.OOM)
	for _, f := range []lifecycle.Field{lifecycle.ProcessLimit, lifecycle.ProcessIO, lifecycle.ProcessSched, lifecycle.MemPolicy, lifecycle.SysctlEntry, lifecycle.NetDevice, lifecycle.InjectedHook, lifecycle.CgroupMount, lifecycle.IntelRDT} {
		same(f, f.String(), settings(want.Process, f), settings(got.Process, f))
	}
}

// settings returns the entries of the map all that are settings of field f.
func settings(all map[string]string, f lifecycle.Field) map[string]string {
	out := map[string]string{}
	for name, text := range all {
		if word, _, _ := strings.Cut(name, " "); word == f.String() {
			out[name] = text
		}
	}
	return out
}

// ids returns the members of a kernel list.
func ids(list string) []int {
	l, _ := topology.ParseList(list)
	return l
}

// mapWithout returns m without the given keys.
func mapWithout(m map[string]string, names ...string) map[string]string {
	out := map[string]string{}
	for k, v := range m {
		if !slices.Contains(names, k) {
			out[k] = v
		}
	}
	return out
}

// sortedCopy returns a sorted copy of a list.
func sortedCopy(list []string) []string {
	return append([]string{}, slices.Sorted(slices.Values(list))...)
}
