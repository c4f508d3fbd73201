package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/sim/effective"
	"github.com/trimtab/trimtab/internal/sim/scenario"
	"github.com/trimtab/trimtab/internal/topology"
)

// snapshot is the effective state of every container that is not stopped.
type snapshot map[scenario.Ref]effective.State

// snapshot returns the present effective state of the containers.
func (p *player) snapshot() snapshot {
	s := snapshot{}
	for _, c := range p.runtime.Containers() {
		if state, err := p.runtime.State(c.Ref); err == nil && c.State != "stopped" {
			s[c.Ref] = state
		}
	}
	return s
}

// restartChanges lists the differences between the states before and after a restart. A restart must change nothing, so
// the player reports each difference like a want that is not met.
func restartChanges(before, after snapshot) []string {
	var notes []string
	for _, ref := range slices.Sorted(maps.Keys(before)) {
		b, a := before[ref], after[ref]
		var changed []string
		note := func(property string, before, after any) {
			if before != after {
				changed = append(changed, fmt.Sprintf("%s %v to %v", property, before, after))
			}
		}
		note("CPUs", b.CPUs, a.CPUs)
		note("memory nodes", b.Mems, a.Mems)
		note("CPU shares", b.Shares, a.Shares)
		note("CPU quota", b.Quota, a.Quota)
		note("memory limit", b.Memory, a.Memory)
		if len(changed) > 0 {
			notes = append(notes, fmt.Sprintf("%s: the restart changed %s", ref, strings.Join(changed, ", ")))
		}
	}
	return notes
}

// patienceAfterUnmet is the longest wait in a step if an earlier step had unmet wants. A want is a state that the
// scenario requires after a step. Later wants often fail for the same reason, and to wait the full time in each step
// takes too long.
const patienceAfterUnmet = 5 * time.Second

// awaitWants waits until all wants of a step are met. The parameter unmetWants is a function that returns the step's
// unmet wants. awaitWants calls this function at intervals and after each write to the kernel.
//
// If wants are still unmet after RunOptions.Patience, awaitWants returns the unmet wants. If an earlier step had unmet
// wants, awaitWants waits at most for patienceAfterUnmet. If the connector is a Repeater, awaitWants repeats the step's
// update while it waits.
func (p *player) awaitWants(ctx context.Context, s *scenario.Step, unmetWants func() []string) []string {
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	repeat := time.NewTicker(repeatPause)
	defer repeat.Stop()
	patience := p.opts.Patience
	if len(p.unmet) > 0 {
		patience = min(patience, patienceAfterUnmet)
	}
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		unmet := unmetWants()
		if len(unmet) == 0 {
			return nil
		}
		select {
		case <-p.kernelWritten:
		case <-poll.C:
		case <-repeat.C:
			if k, repeats := p.connector.(Repeater); repeats && s.Update != nil {
				if err := k.Repeat(ctx, s); err != nil {
					p.opts.Log.Debug("the kubelet cannot repeat its update", "step", s.Name, "err", err)
				}
			}
		case <-late.C:
			return unmet
		case <-ctx.Done():
			return unmet
		}
	}
}

// endedStillReported lists the pods and containers that the step has ended and that the agent still reports. Some
// attachments notify the agent of an end later, and the next step may need the CPUs that the ended pods release.
func (p *player) endedStillReported(s *scenario.Step) []string {
	ends := slices.Concat(s.Stop, s.Remove)
	if len(ends) == 0 {
		return nil
	}
	lives := map[string]bool{}
	for _, c := range p.runtime.Containers() {
		lives[c.ID] = c.State != "stopped"
	}
	now := p.agent.agent.Source().Status()
	var unmet []string
	for _, g := range now.CPUs.Grants {
		namespace, pod, _ := strings.Cut(g.Pod, "/")
		if ref := scenario.PodRef(namespace, pod); slices.Contains(ends, ref) && !slices.Contains(p.runtime.Pods(), ref) {
			unmet = append(unmet, fmt.Sprintf("%s: has ended, but the agent reports that it owns CPUs %s", ref, g.CPUs))
		}
	}
	for _, c := range now.Containers {
		namespace, pod, _ := strings.Cut(c.Pod, "/")
		ref := scenario.PodRef(namespace, pod)
		if !slices.Contains(ends, ref) && !slices.Contains(ends, ref.In(c.Name)) {
			continue
		}
		if !lives[c.ID] && c.State != lifecycle.StateStopped.String() {
			unmet = append(unmet, fmt.Sprintf("%s: has ended, but the agent reports the state %s", ref.In(c.Name), c.State))
		}
	}
	return unmet
}

// BalloonsOf returns the CPUs of the balloons in a list of pools, as kernel lists, by balloon name.
func BalloonsOf(pools []api.Pool) map[string]string {
	all := map[string]string{}
	for _, p := range pools {
		if name, is := strings.CutPrefix(p.Name, p.Class+" "); is && p.Class == placement.Balloon.String() {
			all[name] = p.CPUs
		}
	}
	return all
}

// unmetWants compares all wants of a step with the current state, and returns a text for each unmet want.
func (p *player) unmetWants(s *scenario.Step) []string {
	unmet := p.checkCPUs(s)
	if s.Balloons != nil {
		unmet = append(unmet, s.Balloons.Differences(BalloonsOf(p.agent.agent.Source().Status().CPUs.Pools))...)
	}
	for _, ref := range slices.Sorted(maps.Keys(s.Want)) {
		want := s.Want[ref]
		note := func(format string, args ...any) {
			text := fmt.Sprintf("%s: %s", ref, fmt.Sprintf(format, args...))
			if want.From != "" {
				text += " [" + want.From + "]"
			}
			unmet = append(unmet, text)
		}
		if ref.Container() == "" {
			state, err := p.runtime.PodState(ref)
			if err != nil {
				note("%v", err)
				continue
			}
			Compare(want, state, note)
			p.checkFiles(ref, want, note)
			continue
		}
		p.checkContainer(ref, want, note)
	}
	return unmet
}

// checkContainer compares a container with a want, and calls note for each difference.
func (p *player) checkContainer(ref scenario.Ref, want scenario.Want, note func(string, ...any)) {
	p.checkAgent(ref, want, note)
	if !needsKernelState(want) {
		return
	}
	state, err := p.runtime.State(ref)
	if err != nil {
		note("%v", err)
		return
	}
	Compare(want, state, note)
	p.compareRDT(want, state, note)
	p.compareNodeMemory(ref, want, note)
	p.checkFiles(ref, want, note)
	for _, c := range p.runtime.Containers() {
		if c.Ref == ref && want.State != "" && c.State != want.State {
			note("state is %s, wanted %s", c.State, want.State)
		}
		if c.Ref == ref || !want.Exclusive || c.State != "running" {
			continue
		}
		if other, err := p.runtime.State(c.Ref); err == nil && overlapCPUs(state.CPUs, other.CPUs) {
			note("its CPUs %s are not exclusive: %s may use %s", state.CPUs, c.Ref, other.CPUs)
		}
	}
}

// checkFiles compares a container's cgroup files and disk limits with a want. It skips files that the node's cgroup
// version does not have.
func (p *player) checkFiles(ref scenario.Ref, want scenario.Want, note func(string, ...any)) {
	for _, name := range slices.Sorted(maps.Keys(want.Files)) {
		text, err := p.runtime.File(ref, name)
		switch {
		case errors.Is(err, errors.ErrUnsupported):
			// the node's cgroup version does not have the file
		case err != nil:
			note("%v", err)
		case text != want.Files[name]:
			note("%s is %q, wanted %q", name, text, want.Files[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want.IOLimits)) {
		switch n, err := p.runtime.IOLimit(ref, name); {
		case err != nil:
			note("%v", err)
		case n != want.IOLimits[name]:
			note("disk limit %s is %d, wanted %d", name, n, want.IOLimits[name])
		}
	}
}

// needsKernelState reports whether a want has fields that are compared with the runtime or the kernel. A container that
// was refused does not exist there, so its want has only fields that are compared with the agent's report.
func needsKernelState(w scenario.Want) bool {
	return w.CPUs != nil || w.Mems != nil || w.Shares != nil || w.Quota != nil || w.Memory != nil ||
		w.Env != nil || w.Absent != nil || w.Mounts != nil || w.OOMScoreAdj != nil || w.Process != nil || w.Devices != nil || w.CDI != nil || w.NoDevices || w.BlockIOClass != nil || w.RDTClass != nil || w.Cookie != nil || w.RDTGroup != nil || w.Schemata != nil || w.NoGroups != nil || w.IOLimits != nil || w.Files != nil || w.OnNodes != nil || w.Exclusive || w.State != ""
}

// checkAgent compares the agent's report about a container with a want.
func (p *player) checkAgent(ref scenario.Ref, want scenario.Want, note func(string, ...any)) {
	if want.Class == "" && want.Problems == nil && want.CPUClasses == nil {
		return
	}
	namespace, pod, name := ref.Names()
	found, ok := p.agent.agent.Source().Explain(namespace, pod, name)
	if !ok || len(found) == 0 {
		note("the agent does not know the container")
		return
	}
	c := found[0]
	if want.Class != "" && c.Class != want.Class {
		note("class is %s, wanted %s", c.Class, want.Class)
	}
	compareCPUClasses(want, c, note)
	if want.Problems == nil {
		return
	}
	var problems []string
	for _, q := range c.Problems {
		problems = append(problems, q.String())
	}
	for _, text := range *want.Problems {
		if !slices.ContainsFunc(problems, func(s string) bool { return strings.Contains(s, text) }) {
			note("problems are %q, wanted one that contains %q", problems, text)
		}
	}
	if len(*want.Problems) == 0 && len(problems) > 0 {
		note("problems are %q, wanted none", problems)
	}
}

// compareCPUClasses compares the CPU classes in the agent's explanation of a container with a want.
func compareCPUClasses(want scenario.Want, c api.Container, note func(string, ...any)) {
	if want.CPUClasses == nil {
		return
	}
	var classes []string
	for _, class := range c.CPUClasses {
		text, _ := class.Text()
		classes = append(classes, text)
	}
	if !slices.EqualFunc(classes, *want.CPUClasses, strings.Contains) {
		note("the agent reports the CPU classes %q, wanted %q", classes, *want.CPUClasses)
	}
}

// Compare compares the fields of a want with a state, and calls note for each difference.
func Compare(want scenario.Want, got effective.State, note func(string, ...any)) {
	if want.CPUs != nil && !sameList(*want.CPUs, got.CPUs) {
		note("cpus are %q, wanted %q", got.CPUs, *want.CPUs)
	}
	if want.Mems != nil && !sameList(*want.Mems, got.Mems) {
		note("mems are %q, wanted %q", got.Mems, *want.Mems)
	}
	if want.Shares != nil && !got.HasShares(*want.Shares) {
		if got.V2 {
			note("weight is %d, wanted %d (of shares %d)", got.Shares, effective.Weight(*want.Shares), *want.Shares)
		} else {
			note("shares are %d, wanted %d", got.Shares, *want.Shares)
		}
	}
	if want.Quota != nil && got.Quota != *want.Quota {
		note("quota is %d, wanted %d", got.Quota, *want.Quota)
	}
	if want.Memory != nil && got.Memory != *want.Memory {
		note("memory limit is %d, wanted %d", got.Memory, *want.Memory)
	}
	compareSpec(want, got, note)
}

// compareSpec compares a want with a state in the fields that are not resources in cgroup files. They are the OOM
// score, attributes of processes, environment variables, mounts, devices, and classes and groups.
func compareSpec(want scenario.Want, got effective.State, note func(string, ...any)) {
	if want.OOMScoreAdj != nil && got.OOM != *want.OOMScoreAdj {
		note("oom_score_adj is %d, wanted %d", got.OOM, *want.OOMScoreAdj)
	}
	for _, name := range slices.Sorted(maps.Keys(want.Process)) {
		if got.Process[name] != want.Process[name] {
			note("%s is %q, wanted %q", name, got.Process[name], want.Process[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want.Env)) {
		if v, has := got.Env[name]; !has || v != want.Env[name] {
			note("env %s is %q, wanted %q", name, v, want.Env[name])
		}
	}
	for _, name := range want.Absent {
		if v, has := got.Env[name]; has {
			note("env %s is %q, wanted none", name, v)
		}
	}
	compareDevices(want, got, note)
	compareClasses(want, got, note)
	for _, dest := range slices.Sorted(maps.Keys(want.Mounts)) {
		if v := got.Mounts[dest]; v != want.Mounts[dest] {
			note("mount at %s has the source %q, wanted %q", dest, v, want.Mounts[dest])
		}
	}
}

// compareClasses compares a want with a state in these fields: RDT class, block I/O class, resctrl group and core
// scheduling cookie.
func compareClasses(want scenario.Want, got effective.State, note func(string, ...any)) {
	if want.Cookie != nil && got.Cookie != *want.Cookie {
		note("core scheduling cookie is %d, wanted %d", got.Cookie, *want.Cookie)
	}
	if want.RDTClass != nil && got.RDTClass != *want.RDTClass {
		note("RDT class is %q, wanted %q", got.RDTClass, *want.RDTClass)
	}
	if want.RDTGroup != nil && got.RDTGroup != *want.RDTGroup {
		note("resctrl group is %q, wanted %q", got.RDTGroup, *want.RDTGroup)
	}
	if want.BlockIOClass != nil && got.BlockIO != *want.BlockIOClass {
		note("block I/O class is %q, wanted %q", got.BlockIO, *want.BlockIOClass)
	}
}

// compareDevices compares the device nodes and CDI devices of a want with those of a state.
func compareDevices(want scenario.Want, got effective.State, note func(string, ...any)) {
	for _, d := range want.Devices {
		if !slices.Contains(got.Devices, d) {
			note("devices are %q, wanted %s", got.Devices, d)
		}
	}
	for _, d := range want.CDI {
		if !slices.Contains(got.CDI, d) {
			note("CDI devices are %q, wanted %s", got.CDI, d)
		}
	}
	if want.NoDevices && len(got.Devices)+len(got.CDI) > 0 {
		note("devices are %q and %q, wanted none", got.Devices, got.CDI)
	}
}

// checkAtStart checks the containers whose start is the last action of a step. Their wants must be met already when a
// container runs its first instruction.
func (p *player) checkAtStart(s *scenario.Step) []string {
	var unmet []string
	for _, ref := range s.Started() {
		want, wanted := s.Want[ref]
		first, ran := p.runtime.FirstInstruction(ref)
		if !wanted || !ran {
			continue
		}
		note := func(format string, args ...any) {
			unmet = append(unmet, fmt.Sprintf("%s: at its first instruction %s", ref, fmt.Sprintf(format, args...)))
		}
		if p.opts.WantAtStart != nil {
			want = p.opts.WantAtStart(want)
		}
		Compare(want, first.State, note)
		for _, other := range slices.Sorted(maps.Keys(first.Others)) {
			if want.Exclusive && overlapCPUs(first.CPUs, first.Others[other]) {
				note("its CPUs %s were not exclusive: %s could use %s", first.CPUs, other, first.Others[other])
			}
		}
	}
	return unmet
}

// sameList reports whether two valid kernel lists have the same numbers.
func sameList(a, b string) bool {
	x, errA := topology.ParseList(a)
	y, errB := topology.ParseList(b)
	return errA == nil && errB == nil && slices.Equal(x, y)
}

// overlapCPUs reports whether two kernel lists have a CPU in common.
func overlapCPUs(a, b string) bool {
	x, _ := topology.ParseList(a)
	y, _ := topology.ParseList(b)
	return slices.ContainsFunc(x, func(id int) bool { return slices.Contains(y, id) })
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
