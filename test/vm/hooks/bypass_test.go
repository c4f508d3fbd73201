package hooks_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/parity"
	"github.com/trimtab/trimtab/internal/sim/effective"
	"github.com/trimtab/trimtab/internal/sim/scenario"
	"github.com/trimtab/trimtab/test/vm"
	"github.com/trimtab/trimtab/test/vm/agent"
)

// TestBypass runs the agent with attach: bypass and a containerd without NRI. The values of every class are in force in
// the kernel's files, also for containers that ran before the agent. A killed agent comes back and moves no container.
// A release restores the original values, and for later containers the values that their runtime requested.
func TestBypass(t *testing.T) {
	t.Parallel()
	for _, g := range bypassGuests() {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			s, err := scenario.Load("testdata/beside.yaml")
			if err != nil {
				t.Fatal(err)
			}
			n := boot(t, g.Guest)
			n.at = parity.ByName("bypass")
			n.m.WithoutNRI()
			p := &player{machine: n}
			if err := p.act(&s.Steps[0]); err != nil {
				t.Fatal(err)
			}
			found := p.found()
			if err := errors.Join(n.configure(s.Config), n.attach()); err != nil {
				t.Fatal(err)
			}
			s.Steps = s.Steps[1:]
			if soak() {
				s.Steps = append(s.Steps, scenario.Step{Name: "the runtime is killed and started again", Restart: "runtime", Want: s.Steps[len(s.Steps)-1].Want})
			}
			p.steps(s)
			if t.Failed() {
				return
			}
			if soak() && g.Systemd {
				p.reloads(s.Steps[len(s.Steps)-1].Want)
			}
			p.released(found)
		})
	}
}

// bypassGuests returns the guests: cgroup v2; in make soak with both drivers and both kernels.
func bypassGuests() []variation {
	all := []variation{{"v2", vm.Guest{}}, {"systemd", vm.Guest{Systemd: true}}, {"6.12", vm.Guest{Kernel: "6.12"}}}
	if soak() {
		return all
	}
	return all[:1]
}

// kept has the files that the agent may write and a release restores.
var kept = []string{
	"cpuset.cpus", "cpuset.mems", "cpu.weight", "cpu.max", "cpu.max.burst", "cpu.idle", "memory.max", "memory.high", "memory.low", "memory.min",
}

// found returns the texts of these files for all containers and pods.
func (p *player) found() map[scenario.Ref]map[string]string {
	p.t.Helper()
	all := map[scenario.Ref]map[string]string{}
	for _, ref := range append(slices.Collect(maps.Keys(p.ctrs)), slices.Collect(maps.Keys(p.pods))...) {
		_, files, _, err := p.state(ref)
		if err != nil {
			p.t.Fatal(err)
		}
		all[ref] = map[string]string{}
		for _, name := range kept {
			all[ref][name] = strings.TrimSpace(string(files[name]))
		}
	}
	return all
}

// released releases everything, and checks that earlier containers have their original values and later ones the
// requested values.
func (p *player) released(found map[scenario.Ref]map[string]string) {
	p.t.Helper()
	p.t.Logf("release: %s", p.m.Run(agent.Program, "release"))
	if err := agent.Await(func() error { return lines(differing(found, p.found())) }); err != nil {
		p.t.Errorf("after the release:\n%v", err)
	}
	unlimited, quota, least, one := int64(effective.Unlimited), int64(100_000), uint64(2), uint64(1024)
	all := "0-3"
	none := map[string]string{"cpu.max.burst": "0", "cpu.idle": "0", "memory.high": "max"}
	p.step(&scenario.Step{Name: "released", Want: map[scenario.Ref]scenario.Want{
		"shop/db/c":    {From: "as the runtime requested", CPUs: &all, Quota: &quota, Shares: &one},
		"shop/batch/c": {From: "as the runtime requested", CPUs: &all, Quota: &unlimited, Shares: &least, Memory: &unlimited},
		"shop/on/c":    {From: "as the runtime requested", CPUs: &all, Quota: &quota, Files: none},
		"shop/on":      {From: "as the kubelet made it", Quota: &quota, Files: none},
	}})
	n, err := p.a.Status()
	if err != nil || len(n.CPUs.Grants) > 0 {
		p.t.Errorf("CPUs are owned after the release: %+v (%v)", n.CPUs.Grants, err)
	}
}

// differing returns the files that have changed.
func differing(was, is map[scenario.Ref]map[string]string) (notes []string) {
	for _, ref := range slices.Sorted(maps.Keys(was)) {
		for _, name := range kept {
			if was[ref][name] != is[ref][name] && !widened(ref, name) && !whole(name, was[ref][name], is[ref][name]) {
				notes = append(notes, fmt.Sprintf("  %s: %s was %q and is %q", ref, name, was[ref][name], is[ref][name]))
			}
		}
	}
	return notes
}

// whole reports whether a set that was empty before now has all CPUs: the kernel refuses to empty the set of a cgroup
// with tasks.
func whole(name, was, is string) bool {
	all := map[string]string{"cpuset.cpus": "0-3", "cpuset.mems": "0"}[name]
	return was == "" && all != "" && is == all
}

// widened reports whether the kubelet wrote a file meanwhile, by the update of the scenario.
func widened(ref scenario.Ref, name string) bool {
	return ref == "shop/web/c" && (name == "cpuset.cpus" || name == "cpu.weight")
}

// reloads lets systemd write its values of every cgroup again.
func (p *player) reloads(want map[scenario.Ref]scenario.Want) {
	p.t.Helper()
	for _, command := range []string{"systemctl daemon-reload", "systemctl daemon-reexec"} {
		p.m.Sh(command)
		p.step(&scenario.Step{Name: "after " + command, Want: want})
	}
}
