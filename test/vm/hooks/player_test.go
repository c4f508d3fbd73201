package hooks_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trimtab/trimtab/internal/sim"
	"github.com/trimtab/trimtab/internal/sim/effective"
	"github.com/trimtab/trimtab/internal/sim/scenario"
	"github.com/trimtab/trimtab/internal/topology"
	"github.com/trimtab/trimtab/test/vm/agent"
)

// player plays one scenario.
type player struct {
	*machine
	wants int
}

// play plays a scenario's steps and returns how many wants were compared.
func play(t *testing.T, n *machine, s *scenario.Scenario) int {
	t.Helper()
	p := &player{machine: n}
	p.steps(s)
	return p.wants
}

// steps plays all steps until one fails.
func (p *player) steps(s *scenario.Scenario) {
	p.t.Helper()
	for i := range s.Steps {
		begun := time.Now()
		p.at.RemoveUnsupported(&s.Steps[i])
		p.step(&s.Steps[i])
		p.t.Logf("step %d of %d: %s (%.1f s)", i+1, len(s.Steps), s.Steps[i].Name, time.Since(begun).Seconds())
		if p.t.Failed() {
			return
		}
	}
}

func (p *player) step(s *scenario.Step) {
	p.t.Helper()
	before := p.snapshot(s)
	err := p.act(s)
	switch {
	case s.Rejected == "" && err != nil:
		p.t.Errorf("step %s: %v", s.Name, err)
		return
	case s.Rejected != "" && (err == nil || !strings.Contains(err.Error(), s.Rejected)):
		p.t.Errorf("step %s: was rejected with %v, want %q", s.Name, err, s.Rejected)
	}
	p.wants += len(s.Want)
	if s.Balloons != nil {
		p.wants++
	}
	if err := agent.Await(func() error { return lines(p.check(s)) }); err != nil {
		p.t.Errorf("step %s:\n%v", s.Name, err)
	}
	if err := lines(p.checkFirst(s)); err != nil {
		p.t.Errorf("step %s:\n%v", s.Name, err)
	}
	if err := lines(moved(s.Want, before, p.snapshot(s))); err != nil {
		p.t.Errorf("step %s:\n%v", s.Name, err)
	}
}

// snapshot returns the effective state of all containers, for a comparison around a restart.
func (p *player) snapshot(s *scenario.Step) map[scenario.Ref]effective.State {
	all := map[scenario.Ref]effective.State{}
	if s.Restart == "" {
		return all
	}
	for ref := range p.ctrs {
		if state, _, name, err := p.state(ref); err == nil && name == "running" {
			all[ref] = state
		}
	}
	return all
}

// moved returns what a restart changed, which must be nothing. Two weights stand for the same shares, and a restart may
// replace one by the other: the agent's own, and the runtime's from its stored copy.
func moved(want map[scenario.Ref]scenario.Want, before, after map[scenario.Ref]effective.State) []string {
	var notes []string
	for _, ref := range slices.Sorted(maps.Keys(before)) {
		b, a := before[ref], after[ref]
		shares := want[ref].Shares
		weighs := b.Shares == a.Shares || shares != nil && hasShares(b, *shares) && hasShares(a, *shares)
		if b.CPUs != a.CPUs || b.Mems != a.Mems || !weighs || b.Quota != a.Quota || b.Memory != a.Memory {
			notes = append(notes, fmt.Sprintf("%s: the restart changed it from %+v to %+v", ref, b, a))
		}
	}
	return notes
}

func (p *player) act(s *scenario.Step) error {
	if s.Restart == "" {
		p.m.Sh("touch /run/last-step")
	}
	for i := range s.Run {
		r := &s.Run[i]
		if err := p.run(r); err != nil {
			return err
		}
	}
	switch {
	case s.Create != nil:
		return p.create(s.Create.Pod, s.Create.Container)
	case s.Start != "":
		return p.start(s.Start)
	case s.Update != nil:
		return s.Update.WithPodWrites(func(pod scenario.Ref, res scenario.Resources) error {
			return p.sh(p.podScript(p.pods[pod].dir, res))
		}, func() error { return p.update(s.Update.Container, s.Update.Resources) })
	case s.Restart == "agent":
		p.saved()
		p.a.Kill()
		return p.attach()
	case s.Restart == "runtime":
		p.m.StopContainerd()
		p.m.StartContainerd()
		return errors.Join(p.a.AwaitAttached(), p.answers())
	case len(s.Reconfigure) > 0:
		return p.reconfigure(s.Reconfigure)
	}
	for _, ref := range s.Stop {
		if err := p.stop(ref); err != nil {
			return err
		}
	}
	for _, ref := range s.Remove {
		if err := p.remove(ref); err != nil {
			return err
		}
	}
	return nil
}

// saved waits until the agent has saved the last step, or has nothing to save: it saves a fifth of a second after a
// change, and an agent that is killed earlier knows less. Scenarios are about what it saved.
func (p *player) saved() {
	p.m.Sh("n=0; until [ /var/lib/trimtab/checkpoint.json -nt /run/last-step ] || [ $n -eq 40 ]; do n=$((n+1)); sleep 0.05; done")
}

// check compares every want of a step with the present state.
func (p *player) check(s *scenario.Step) []string {
	unmet := p.checkBalloons(s.Balloons)
	for _, ref := range slices.Sorted(maps.Keys(s.Want)) {
		want := s.Want[ref]
		p.checkOne(ref, want, func(format string, args ...any) {
			unmet = append(unmet, fmt.Sprintf("  %s: %s [%s]", ref, fmt.Sprintf(format, args...), want.From))
		})
	}
	return unmet
}

func (p *player) checkBalloons(want *scenario.Balloons) []string {
	if want == nil {
		return nil
	}
	n, err := p.a.Status()
	if err != nil {
		return []string{err.Error()}
	}
	return want.Differences(sim.BalloonsOf(n.CPUs.Pools))
}

func (p *player) checkOne(ref scenario.Ref, want scenario.Want, note func(string, ...any)) {
	if ref.Container() != "" {
		p.checkAgent(ref, want, note)
	}
	if !asksKernel(want) {
		return
	}
	got, files, state, err := p.state(ref)
	if err != nil {
		note("%v", err)
		return
	}
	if want.State != "" && state != want.State {
		note("is %s, wanted %s", state, want.State)
	}
	compare(want, got, note)
	for _, name := range slices.Sorted(maps.Keys(want.Files)) {
		if text, has := p.file(files, name); has && text != want.Files[name] {
			note("%s is %q, wanted %q", name, text, want.Files[name])
		}
	}
	if want.Exclusive {
		p.checkExclusive(ref, got, note)
	}
}

func (p *player) checkExclusive(ref scenario.Ref, got effective.State, note func(string, ...any)) {
	for other := range p.ctrs {
		if other == ref {
			continue
		}
		if theirs, _, state, err := p.state(other); err == nil && state == "running" && overlap(got.CPUs, theirs.CPUs) {
			note("its CPUs %s are not its own: %s has %s", got.CPUs, other, theirs.CPUs)
		}
	}
}

// asksKernel reports whether a want has anything that the runtime or the kernel must show. A refused container has only
// the agent's report.
func asksKernel(w scenario.Want) bool {
	return w.CPUs != nil || w.Mems != nil || w.Shares != nil || w.Quota != nil || w.Memory != nil || w.OOMScoreAdj != nil ||
		len(w.Env)+len(w.Absent)+len(w.Mounts)+len(w.Devices)+len(w.CDI)+len(w.Files) > 0 || w.NoDevices || w.Exclusive || w.State != ""
}

// checkAgent compares the agent's report of a container.
func (p *player) checkAgent(ref scenario.Ref, want scenario.Want, note func(string, ...any)) {
	if want.Class == "" && want.Problems == nil {
		return
	}
	found, err := p.a.Explain(ref.Names())
	if err != nil || len(found) == 0 {
		note("the agent does not report the container (%v)", err)
		return
	}
	if want.Class != "" && found[0].Class != want.Class {
		note("class is %s, wanted %s", found[0].Class, want.Class)
	}
	if want.Problems == nil {
		return
	}
	said := fmt.Sprint(found[0].Problems)
	for _, text := range *want.Problems {
		if !strings.Contains(said, text) {
			note("problems are %s, wanted one with %q", said, text)
		}
	}
	if len(*want.Problems) == 0 && len(found[0].Problems) > 0 {
		note("problems are %s, wanted none", said)
	}
}

// checkFirst compares the state at the first instruction of the containers that started last.
func (p *player) checkFirst(s *scenario.Step) []string {
	var unmet []string
	for _, ref := range s.Started() {
		want, wanted := s.Want[ref]
		want = p.at.WantAtStart(want)
		c := p.ctrs[ref]
		if !wanted || c == nil {
			continue
		}
		note := func(format string, args ...any) {
			unmet = append(unmet, fmt.Sprintf("  %s: at its first instruction %s", ref, fmt.Sprintf(format, args...)))
		}
		got, err := effective.ReadCgroup(seen(c.first.Cgroup), !p.m.Guest.CgroupV1, "own")
		if err != nil {
			note("%v", err)
			continue
		}
		got.Env = c.first.Env
		want.OOMScoreAdj, want.Devices, want.CDI, want.NoDevices, want.Mounts = nil, nil, nil, false, nil // as in the OCI spec
		if want.Quota != nil && *want.Quota > 0 && p.m.Guest.Systemd {
			// For systemd runc rounds the quota up to hundredths of a CPU. The agent writes the decided value once the container
			// runs, which may be before the probe reads it.
			if rounded := (*want.Quota + 999) / 1000 * 1000; got.Quota == rounded {
				want.Quota = &rounded
			}
		}
		compare(want, got, note)
		if want.CPUs != nil && !sameList(c.first.Affinity, *want.CPUs) {
			note("its affinity was %s, wanted %s", c.first.Affinity, *want.CPUs)
		}
		if want.Mems != nil && !sameList(c.first.MemsAllowed, *want.Mems) {
			note("its memory nodes were %s, wanted %s", c.first.MemsAllowed, *want.Mems)
		}
	}
	return unmet
}

func sameList(a, b string) bool {
	x, errA := topology.ParseList(a)
	y, errB := topology.ParseList(b)
	return errA == nil && errB == nil && slices.Equal(x, y)
}

func overlap(a, b string) bool {
	x, _ := topology.ParseList(a)
	y, _ := topology.ParseList(b)
	return slices.ContainsFunc(x, func(id int) bool { return slices.Contains(y, id) })
}
