package bench

import (
	"fmt"
	"testing"
	"time"

	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/placement/choose"
	"github.com/trimtab/trimtab/internal/placement/pools"
	"github.com/trimtab/trimtab/internal/topology/describe"
)

// pooled is a node under the policy pools, with the number of owned CPUs.
type pooled struct {
	state *engine.State
	cpus  int
	made  int
}

func newPooled(b *testing.B, text string) *pooled {
	b.Helper()
	m, err := describe.Parse(text)
	if err != nil {
		b.Fatal(err)
	}
	all := m.Online()
	s := engine.NewState(m, engine.Policy{
		PlacementOn: true, Dialects: intent.Dialects(), Pools: placement.Pools{Online: all, Shared: all, Reclaimed: all},
		Placement: &pools.Policy{Tree: choose.NewTree(m), Sizing: pools.NewSizing(m)}, Hooks: []hook.Hook{hook.CPUSetOptions{UnsetQuota: true}},
	})
	return &pooled{state: s, cpus: len(m.CPUs)}
}

// pod makes the events of a pod with one container: RunPodSandbox, CreateContainer and its end.
func (p *pooled) pod(annotations map[string]string, cpus uint64) (run, create, remove *lifecycle.Event) {
	p.made++
	name := fmt.Sprint("p", p.made)
	pod := &lifecycle.Pod{ID: "s-" + name, UID: "u-" + name, Namespace: "bench", Name: name, Annotations: annotations, CgroupParent: "/kubepods/" + name}
	ctr := &lifecycle.Container{ID: "c-" + name, PodID: pod.ID, Name: "main", State: lifecycle.StateRunning, CgroupsPath: pod.CgroupParent + "/c"}
	ctr.Resources.CPU = lifecycle.CPU{Shares: lifecycle.Some(max(cpus*1024, 2)), Quota: lifecycle.Some(int64(cpus) * 100000)}
	pod.Resources = &ctr.Resources
	return &lifecycle.Event{Kind: lifecycle.RunPodSandbox, Pod: pod}, &lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: pod, Container: ctr},
		&lifecycle.Event{Kind: lifecycle.RemovePodSandbox, Pod: pod}
}

func (p *pooled) do(ev *lifecycle.Event) *engine.Plan {
	plan := engine.Decide(p.state, ev, engine.Facts{})
	p.state.Commit(plan)
	return plan
}

var (
	ownsCPUs = map[string]string{intent.KatalystQoSLevel: "dedicated_cores"}
	ownsNode = map[string]string{intent.KatalystQoSLevel: "dedicated_cores", intent.KatalystMemory: `{"numa_binding":"true"}`}
	leftover = map[string]string{intent.KatalystQoSLevel: "reclaimed_cores"}
)

func sharesPool(i int) map[string]string {
	names := []string{"", `{"cpuset_pool":"a"}`, `{"cpuset_pool":"b"}`}
	return map[string]string{intent.KatalystQoSLevel: "shared_cores", intent.KatalystCPU: names[i%len(names)]}
}

// fill makes pods that own a part of the CPUs, two each, and a thousand containers that share the rest.
func (p *pooled) fill(percent int) {
	for n := 0; n+2 <= p.cpus*percent/100; n += 2 {
		run, create, _ := p.pod(ownsCPUs, 2)
		p.do(run)
		p.do(create)
	}
	for i := range 1000 {
		annotations := sharesPool(i)
		if i%3 == 0 {
			annotations = leftover
		}
		run, create, _ := p.pod(annotations, 0)
		p.do(run)
		p.do(create)
	}
}

// BenchmarkPools measures decisions under the policy pools, by the size of the node and by the share of owned CPUs,
// with a thousand containers in the pools.
func BenchmarkPools(b *testing.B) {
	s := table.section("engine.Decide under the policy pools, 1,000 containers in the pools", "CPUs", "owned %", "what", "calls", "p50", "p99")
	s.note = "\"own 2\" decides a CreateContainer of a pod that gets two exclusive CPUs, \"own 2, bound\" of one that is bound to a NUMA node.\n" +
		"\"rebalance\" decides and commits a new shared container of two CPUs: two or three pools change, with some 1,000 containers."
	for _, text := range []string{"2s x 1n x 16c x 2t", "2s x 4n x 16c x 2t", "8s x 8n x 8c x 2t"} {
		for _, percent := range []int{0, 50, 95} {
			p := newPooled(b, text)
			b.Run(fmt.Sprintf("%d/%d%%", p.cpus, percent), func(b *testing.B) {
				p := newPooled(b, text)
				p.fill(percent)
				p.measure(b, s, percent)
			})
		}
	}
}

func (p *pooled) measure(b *testing.B, s *section, percent int) {
	b.Helper()
	run, create, _ := p.pod(ownsCPUs, 2)
	p.do(run)
	runBound, createBound, _ := p.pod(ownsNode, 2)
	p.do(runBound)
	runShared, createShared, removeShared := p.pod(sharesPool(0), 2)
	took := make([]sample, 3)
	for b.Loop() {
		for i, ev := range []*lifecycle.Event{create, createBound} {
			start := time.Now()
			engine.Decide(p.state, ev, engine.Facts{})
			took[i] = append(took[i], time.Since(start))
		}
		p.do(runShared)
		start := time.Now()
		p.do(createShared)
		took[2] = append(took[2], time.Since(start))
		p.do(removeShared)
	}
	for i, what := range []string{"own 2", "own 2, bound", "rebalance"} {
		s.row(p.cpus, percent, what, len(took[i]), took[i].at(50), took[i].at(99))
	}
}
