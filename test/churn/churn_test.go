package churn

import (
	"fmt"
	"log/slog"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/adaptation"
	"go.uber.org/goleak"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/sim"
	"github.com/trimtab/trimtab/internal/sim/scenario"
	"github.com/trimtab/trimtab/internal/topology"
)

func TestMain(m *testing.M) {
	sim.SetNRILog(slog.New(slog.DiscardHandler))
	// A runtime drops a slow plugin, which is not what these tests check.
	adaptation.SetPluginRequestTimeout(patience)
	goleak.VerifyTestMain(m)
}

// fullNode is the number of containers on a full node.
const fullNode = 1000

// TestChurn creates, resizes and removes a thousand containers. With TRIMTAB_SOAK it plays more steps and seeds, with
// both cgroup versions.
func TestChurn(t *testing.T) {
	t.Parallel()
	steps, seeds := 300, []uint64{1}
	if os.Getenv("TRIMTAB_SOAK") != "" {
		first := firstSeed(t)
		steps, seeds = 5000, []uint64{first, first + 1, first + 2}
	}
	for _, seed := range seeds {
		for _, v := range []cgroup.Version{cgroup.V2, cgroup.V1} {
			if v == cgroup.V1 && len(seeds) == 1 {
				continue // of make soak
			}
			t.Run(fmt.Sprintf("seed %d/%s", seed, v), func(t *testing.T) {
				t.Parallel()
				n := newNode(t, v, seed, "")
				if wrong := n.churn(fullNode, steps); len(wrong) > 0 {
					n.logContainers(wrong)
					t.Fatalf("seed %d: %s", seed, strings.Join(wrong, "\n"))
				}
				if n.owned < steps/20 || n.refused > n.owned {
					t.Errorf("%d owners got CPUs and %d were refused: too few for this test", n.owned, n.refused)
				}
				if n.resized < steps/50 || n.kept == 0 {
					t.Errorf("%d resizes of owners were granted and %d were refused: too few for this test", n.resized, n.kept)
				}
				t.Logf("%d pods; %d owners and %d refused; %d resizes and %d refused; checked %d writes and container starts",
					n.made, n.owned, n.refused, n.resized, n.kept, n.observer.writes)
				n.emptied()
			})
		}
	}
}

// firstSeed is the first seed of make soak: 1, or TRIMTAB_SEED.
func firstSeed(t *testing.T) uint64 {
	t.Helper()
	text := os.Getenv("TRIMTAB_SEED")
	if text == "" {
		return 1
	}
	seed, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		t.Fatalf("TRIMTAB_SEED is %q, want a number", text)
	}
	return seed
}

// TestChurnFaults shows that the observer finds faults. It delays the shrink of other cpusets until after a container
// has started or has been resized, which breaks I1.
func TestChurnFaults(t *testing.T) {
	t.Parallel()
	for _, fault := range []string{"late", "lost", "resizes"} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, cgroup.V2, 1, fault)
			for _, w := range n.churn(100, 100) {
				if strings.HasPrefix(w, "I1") {
					t.Logf("found among %d pods: %s", n.made, w)
					return
				}
			}
			t.Error("other containers kept CPUs that were granted, and the observer did not report it")
		})
	}
}

// churn fills the node and plays steps on it. It returns at the first violation.
func (n *node) churn(fullNode, steps int) []string {
	for n.containers() < fullNode {
		n.run()
		if wrong := n.observer.verdict(); len(wrong) > 0 {
			return wrong
		}
	}
	for i := range steps {
		n.step(fullNode)
		switch i % 100 {
		case 24:
			n.restart("agent")
		case 49:
			n.reconfigure(i%200 < 100)
		case 74:
			n.restart("runtime")
		case 99:
			n.audit()
		}
		if wrong := n.observer.verdict(); len(wrong) > 0 {
			return append(wrong, fmt.Sprintf("at step %d", i))
		}
	}
	n.audit()
	return n.observer.verdict()
}

// named matches the observer's name of a container
var named = regexp.MustCompile(`churn/[a-z]+-[0-9]+/[a-z0-9-]+`)

// logContainers logs the agent's status and the cgroup values of the containers in the observer's findings.
func (n *node) logContainers(wrong []string) {
	for _, name := range slices.Compact(slices.Sorted(slices.Values(named.FindAllString(strings.Join(wrong, " "), -1)))) {
		ref := scenario.Ref(name)
		found, _ := n.agent.Source().Explain(ref.Names())
		state, err := n.runtime.State(ref)
		n.t.Logf("%s: %+v; in force: %+v (%v)", name, found, state, err)
	}
}

func (n *node) containers() int {
	sum := 0
	for _, p := range n.pods {
		sum += len(p.ctrs)
	}
	return sum
}

// step does one random operation.
func (n *node) step(fullNode int) {
	p := n.pods[n.rng.IntN(len(n.pods))]
	c := &p.ctrs[n.rng.IntN(len(p.ctrs))]
	switch what := n.rng.IntN(100); {
	case n.containers() < fullNode:
		n.run()
	case what < 40:
		n.remove(p)
	case what < 50 && !p.stopped:
		n.crash(p, c)
	case what < 57 && !p.stopped && !p.kind.owns:
		c.Resources.Shares = new(2 + n.rng.Uint64N(1024))
		n.must("update", n.runtime.UpdateContainer(n.t.Context(), p.ref().In(c.Name), scenario.Resources{Shares: c.Resources.Shares}))
	case what < 60:
		n.stopPod(p)
	case what < 73:
		n.resizeAny()
	case what < 80:
		if waiting := slices.Sorted(maps.Keys(n.waiting)); len(waiting) > 0 { // sorted, so that a seed gives one history
			ref := waiting[n.rng.IntN(len(waiting))]
			n.start(n.pod(ref.Pod()), ref)
		}
	default:
		n.run()
	}
}

func (n *node) pod(ref scenario.Ref) *pod {
	return n.pods[slices.IndexFunc(n.pods, func(p *pod) bool { return p.ref() == ref })]
}

func (n *node) must(what string, err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatalf("%s: %v", what, err)
	}
}

// run runs a new pod. Some containers stay created for a while before they start.
func (n *node) run() {
	p := n.make(n.draw())
	n.must("run pod", n.runtime.RunPodSandbox(n.t.Context(), p.Pod, sim.SumResources(p.QoS, p.ctrs)))
	n.pods = append(n.pods, p)
	for _, c := range p.ctrs {
		n.create(p, c)
		if ref := p.ref().In(c.Name); n.rng.IntN(20) == 0 {
			n.waiting[ref] = true
		} else {
			n.start(p, ref)
		}
	}
}

func (n *node) create(p *pod, c scenario.Container) {
	n.must("create", n.runtime.CreateContainer(n.t.Context(), p.ref(), c))
	if p.kind.owns {
		p.did("creation of %s with a quota of %d: %s", c.Name, *c.Resources.Quota, summary(n.explain(p.ref().In(c.Name))))
	}
}

// start starts a created container. The observer checks it at its first instruction.
func (n *node) start(p *pod, ref scenario.Ref) {
	delete(n.waiting, ref)
	reported := n.explain(ref)
	var owned topology.Set
	if reported.CPUGroup == "exclusive" {
		ids, err := topology.ParseList(reported.CPUs)
		n.must("CPUs it owns", err)
		owned = topology.SetOf(ids...)
	}
	p.did("start of %s: %s", ref.Container(), summary(reported))
	if ref.Container() == "main" {
		n.judgeGrant(p, reported, owned)
	}
	dir := n.dir(p, ref)
	n.next = func() {
		n.observer.started(dir, seen{ref: ref, reclaimed: p.kind.reclaimed}, owned, p.kind.lent)
	}
	n.must("start", n.runtime.StartContainer(n.t.Context(), ref))
}

func (n *node) explain(ref scenario.Ref) api.Container {
	found, ok := n.agent.Source().Explain(ref.Names())
	if !ok || len(found) != 1 {
		n.t.Fatalf("the agent reports %d containers %s", len(found), ref)
	}
	return found[0]
}

// judgeGrant compares the CPUs that a pod owns with its request.
func (n *node) judgeGrant(p *pod, reported api.Container, owned topology.Set) {
	switch {
	case !p.kind.owns && !owned.Empty():
		n.blame(p, "%s owns %s and asked for none", p.ref(), reported.CPUs)
	case !p.kind.owns:
	case owned.Empty() && len(reported.Problems) == 0:
		n.blame(p, "%s owns nothing, and no reason is reported: %+v", p.ref(), reported)
	case owned.Empty():
		n.refused++
	case owned.Len() != p.cpus && !p.kind.all:
		n.blame(p, "%s owns %s, want %d CPUs", p.ref(), reported.CPUs, p.cpus)
	default:
		n.owned++
	}
	if !p.kind.bound || owned.Empty() {
		return
	}
	for _, cpus := range n.observer.nodes {
		if both := cpus.And(owned); !both.Empty() && both != owned {
			n.blame(p, "%s is bound to a NUMA node and owns %s", p.ref(), reported.CPUs)
		}
	}
}

// dir is the cgroup of a container.
func (n *node) dir(p *pod, ref scenario.Ref) string {
	spec, ok := n.runtime.Spec(ref)
	if !ok {
		n.t.Fatalf("%s has no OCI spec", ref)
	}
	dir, err := cgroup.Path("/"+n.runtime.PodDir(p.QoS, n.runtime.UID(p.ref())), spec.Linux.CgroupsPath)
	n.must("cgroup", err)
	return dir
}

// crash ends a container and creates it again, as a kubelet does after a crash.
func (n *node) crash(p *pod, c *scenario.Container) {
	ref := p.ref().In(c.Name)
	n.observer.stopped(n.dir(p, ref))
	delete(n.waiting, ref)
	n.must("remove container", n.runtime.RemoveContainer(n.t.Context(), ref))
	p.did("end of %s", ref.Container())
	n.create(p, *c)
	n.start(p, ref)
}

// end removes a pod from the observer.
func (n *node) end(p *pod) {
	for _, c := range p.ctrs {
		ref := p.ref().In(c.Name)
		n.observer.stopped(n.dir(p, ref))
		delete(n.waiting, ref)
	}
	n.observer.gone(p.ref())
	p.stopped = true
}

func (n *node) stopPod(p *pod) {
	n.end(p)
	n.must("stop pod", n.runtime.StopPodSandbox(n.t.Context(), p.ref()))
}

func (n *node) remove(p *pod) {
	n.end(p)
	n.must("remove pod", n.runtime.RemovePodSandbox(n.t.Context(), p.ref()))
	n.pods = slices.DeleteFunc(n.pods, func(o *pod) bool { return o == p })
}

// reconfigure changes the CPUs of every pool.
func (n *node) reconfigure(overlap bool) {
	n.config.Placement.Reclaim = map[bool]string{true: "overlap", false: "leftover"}[overlap]
	n.must("reconfigure", n.agent.Reconfigure(n.config))
}

// audit reads all files, and compares the owners that the agent reports with those of the observer.
func (n *node) audit() {
	n.observer.audit()
	reported := map[scenario.Ref]topology.Set{}
	for _, g := range n.agent.Source().Status().CPUs.Grants {
		ids, err := topology.ParseList(g.CPUs)
		n.must("grants", err)
		namespace, name, _ := strings.Cut(g.Pod, "/")
		ref := scenario.PodRef(namespace, name)
		reported[ref] = reported[ref].Union(topology.SetOf(ids...))
	}
	for ref, cpus := range n.observer.grants() {
		if reported[ref] != cpus {
			n.t.Errorf("%s owns %v, and the agent reports %v", ref, cpus.Members(), reported[ref].Members())
		}
		delete(reported, ref)
	}
	for ref, cpus := range reported {
		if p := slices.IndexFunc(n.pods, func(p *pod) bool { return p.ref() == ref && !p.stopped }); p < 0 {
			n.t.Errorf("I4: %v are still owned by %s, which is gone", cpus.Members(), ref)
		}
	}
}

// emptied removes all pods and then lets one pod own all CPUs, which shows that none has leaked.
func (n *node) emptied() {
	for len(n.pods) > 0 {
		n.remove(n.pods[0])
	}
	n.audit()
	p := n.make(kind{name: "last", level: "dedicated", milli: [2]int{253_000, 253_000}, owns: true})
	p.ctrs, p.cpus = p.ctrs[:1], 253
	n.must("run the last pod", n.runtime.RunPodSandbox(n.t.Context(), p.Pod, sim.SumResources(p.QoS, p.ctrs)))
	n.pods = append(n.pods, p)
	n.create(p, p.ctrs[0])
	n.start(p, p.ref().In("main"))
	if owned := n.observer.grants()[p.ref()].Len(); owned != 253 {
		n.t.Errorf("on an empty node one pod owns %d CPUs, want 253", owned)
	}
}
