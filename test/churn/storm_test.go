package churn

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trimtab/trimtab/internal/agent"
	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/status"
	"github.com/trimtab/trimtab/internal/sim"
	"github.com/trimtab/trimtab/internal/sim/cri"
	"github.com/trimtab/trimtab/internal/sim/kernel"
	"github.com/trimtab/trimtab/internal/sim/scenario"
	"github.com/trimtab/trimtab/internal/statefile"
	"github.com/trimtab/trimtab/internal/topology"
	"github.com/trimtab/trimtab/internal/topology/describe"
	"github.com/trimtab/trimtab/test/conformance"
	"github.com/trimtab/trimtab/test/faults"
)

const (
	// stormPatience bounds how long the agent may take to repair everything after calls stop failing: its longest retry
	// pause, and time for a busy machine.
	stormPatience = 20 * time.Second
	// lastPatience is how long a shutdown may take.
	lastPatience = 30 * time.Second
	// burst is the number of operations between two audits.
	burst = 40
	// bystanders is the approximate number of containers.
	bystanders = 60
)

// rates is the number of calls of which one fails, by kind of call. Reads are far more frequent than other calls.
func rates() map[string]int {
	return map[string]int{"": 40, "cgroup read": 80, "cgroup write": 12, "state": 20, "runtime read": 250, "runtime write": 250}
}

// storm is a node on which calls of the agent fail.
type storm struct {
	*node
	plan      *faults.Plan
	dir       string
	attach    string
	referee   *referee
	criServer *cri.Server
	kubelet   *conformance.Kubelet
	ended     chan error
	cancel    context.CancelFunc
	starts    int // failed starts of the agent
	trace     trace
	// unseen are containers and pods that the kubelet resized or created again while the agent was stopped: the agent
	// cannot tell their later requests from its own values.
	unseen map[scenario.Ref]bool
	// unjudged are those of them that the test does not check after a release.
	unjudged int
	// resized are pods that were resized in place.
	resized map[scenario.Ref]bool
	// mixed are pods of which a container started without a decision.
	mixed map[scenario.Ref]bool
}

// TestStorm makes the agent's file and socket calls fail while containers are created, resized and removed. No
// container ever gets a CPU that another owns. When calls succeed again, every decided value is in force. A shutdown
// ends in time, whatever fails. After a release every container has its original values.
func TestStorm(t *testing.T) { //nolint:tparallel // subtests run in parallel, and the test adds up their counts afterwards
	t.Parallel()
	want := 500
	if os.Getenv("TRIMTAB_SOAK") != "" {
		want = 10_000
	}
	sum := faults.FailCalls(0, -1, 0)
	t.Run("attached", func(t *testing.T) {
		for i, attach := range []string{"nri", "cri"} {
			for _, v := range []cgroup.Version{cgroup.V2, cgroup.V1} {
				if v == cgroup.V1 && want == 500 {
					continue // of make soak
				}
				share := want / 2
				if want != 500 {
					share = want / 4
				}
				t.Run(attach+"/"+v.String(), func(t *testing.T) {
					t.Parallel()
					n := newStorm(t, attach, v, uint64(i+1))
					n.rage(share)
					sum.Add(n.plan)
				})
			}
		}
	})
	t.Log(sum)
}

func newStorm(t *testing.T, attach string, v cgroup.Version, seed uint64) *storm {
	t.Helper()
	s := &storm{
		node: &node{t: t, rng: rand.New(rand.NewPCG(seed, 3)), waiting: map[scenario.Ref]bool{}},
		plan: faults.FailRandomly(seed, rates()), dir: t.TempDir(), attach: attach, unseen: map[scenario.Ref]bool{}, mixed: map[scenario.Ref]bool{}, resized: map[scenario.Ref]bool{},
	}
	s.plan.Off()
	var err error
	if s.machine, err = describe.Parse("2s x 2n x 8c x 2t, 64GiB/node"); err != nil {
		t.Fatal(err)
	}
	kernel, err := kernel.NewCgroups(v, "0-63", "0-3")
	if err != nil {
		t.Fatal(err)
	}
	s.referee = newReferee(kernel, v)
	s.tree = &cgroup.Tree{FS: faults.Kernel(s.plan, s.referee, nil), Version: v}
	s.config = configOf(s.dir, v)
	s.config.Pools.Reserved = "0"
	if attach == "cri" {
		s.config.Attach = "cri"
		s.config.CRI.Endpoint, s.config.CRI.ImageEndpoint, s.config.CRI.Socket = "unix://"+filepath.Join(s.dir, "r"), "", filepath.Join(s.dir, "c")
	}
	s.runtime, err = sim.NewRuntime(sim.Options{
		Machine: s.machine, Kernel: kernel, Version: v, Driver: sim.Cgroupfs, Socket: s.config.NRI.Socket, Seed: "storm", ManyContainers: true, Observe: s.observe,
	})
	if err == nil {
		err = s.runtime.Start(t.Context())
	}
	if err == nil && attach == "cri" {
		if s.criServer, err = cri.Serve(s.runtime, cri.Options{Socket: filepath.Join(s.dir, "r")}); err == nil {
			s.kubelet, err = conformance.NewKubelet(s.runtime, s.config.CRI.Socket)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	s.launch()
	return s
}

func (s *storm) close() {
	s.plan.Off()
	s.end()
	if s.kubelet != nil {
		_ = s.kubelet.Close()
		s.criServer.Close()
	}
	s.runtime.Stop()
}

// observe checks a container at StartContainer, before its first instruction.
func (s *storm) observe(ev sim.Event) {
	switch {
	case ev.Kind == "Synchronize":
		s.syncs.Add(1)
	case ev.Kind == "StartContainer" && ev.Err == nil:
		s.next()
	}
}

// launch starts the agent again until that succeeds, like a supervisor.
func (s *storm) launch() {
	s.t.Helper()
	for range 200 {
		a, err := agent.New(agent.Options{
			Config: s.config, Machine: s.machine, Tree: s.tree, Log: slog.New(slog.NewTextHandler(&s.trace, nil)), Proc: filepath.Join(s.dir, "no-proc"),
			StateFS: func(dir string) statefile.FS { return faults.Files(s.plan, statefile.Disk(dir)) },
			Dial:    faults.Dial(s.plan, "runtime"), WrapListener: faults.WrapListener(s.plan, "status"), FreeMemory: func() {},
		})
		if err != nil {
			s.starts++
			continue
		}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- a.Run(ctx) }()
		s.agent, s.ended, s.cancel = a, ended, cancel
		return
	}
	s.t.Fatal("the agent cannot be started")
}

// end stops the agent, which must not hang. It ignores errors of failed closes.
func (s *storm) end() {
	s.t.Helper()
	if s.cancel == nil {
		return
	}
	s.cancel()
	s.cancel = nil
	select {
	case <-s.ended:
	case <-time.After(lastPatience):
		s.t.Fatal("the agent does not shut down")
	}
}

// rage plays until that many calls have failed.
func (s *storm) rage(want int) {
	s.settle("at first")
	for round := 0; s.plan.Faults() < want; round++ {
		s.plan.On()
		for range burst {
			s.step()
			if wrong := s.referee.verdict(); len(wrong) > 0 {
				s.t.Fatalf("round %d: %s\n%s", round, strings.Join(wrong, "\n"), s.trace.about(s.names(wrong)...))
			}
		}
		s.ask()
		switch round % 3 {
		case 0: // the disk keeps failing
			s.end()
			s.launch()
		case 1:
			s.plan.Off()
			s.end()
			s.launch()
		}
		s.plan.Off()
		s.settle(fmt.Sprintf("after round %d", round))
	}
	s.referee.mu.Lock()
	writes, late := s.referee.writes, s.referee.late
	s.referee.mu.Unlock()
	s.released()
	s.t.Logf("%d pods, %d writes checked, %d containers late to give up CPUs, %d failed starts, %d of %d containers not checked after the release\n%s",
		s.made, writes, late, s.starts, s.unjudged, s.containers(), s.plan)
}

// ask reads the agent's status over a failing socket.
func (s *storm) ask() {
	for range 20 {
		_, _ = s.answers() // the request may fail but must not hang
	}
}

// answers reads the status over the status socket.
func (s *storm) answers() (n api.Node, err error) {
	ctx, stop := context.WithTimeout(s.t.Context(), 5*time.Second)
	defer stop()
	c, err := status.Dial(ctx, s.config.Paths.StatusSocket)
	if err != nil {
		return n, err
	}
	defer c.Close()
	return c.Status(ctx)
}

// settle waits until an audit finds nothing wrong.
func (s *storm) settle(when string) {
	s.t.Helper()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	var wrong []string
	for deadline := time.Now().Add(stormPatience); time.Now().Before(deadline); <-look.C {
		if wrong = s.wrongs(); len(wrong) == 0 {
			return
		}
	}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(named.FindAllString(wrong[0], -1)))) {
		found, _ := s.agent.Source().Explain(scenario.Ref(name).Names())
		state, err := s.runtime.State(scenario.Ref(name))
		s.t.Logf("%s: %+v; in force: %+v (%v)", name, found, state, err)
	}
	wrong = wrong[:min(len(wrong), 10)]
	s.t.Fatalf("%s, %s later: %s\n%s\n%s", when, stormPatience, strings.Join(wrong, "\n"), s.plan, s.trace.about(s.names(wrong)...))
}

var podNamed = regexp.MustCompile(`churn/[a-z]+-[0-9]+`)

// names returns the pods that are named in findings, and words of messages that concern all pods.
func (s *storm) names(wrong []string) []string {
	names := []string{"attached", "was renamed"}
	for _, ref := range podNamed.FindAllString(strings.Join(wrong, " "), -1) {
		_, name, _ := strings.Cut(ref, "/")
		name, _, _ = strings.Cut(name, "/")
		names = append(names, name)
	}
	return names
}

// wrongs lists what is wrong while no call fails.
func (s *storm) wrongs() []string {
	if !s.agent.Connected() {
		return []string{"the agent is not connected"}
	}
	n, err := s.answers()
	if err != nil {
		return []string{fmt.Sprintf("the status socket: %v", err)}
	}
	owned := map[scenario.Ref]*holds{}
	for _, g := range n.CPUs.Grants {
		ids, err := topology.ParseList(g.CPUs)
		s.must("grants", err)
		namespace, name, _ := strings.Cut(g.Pod, "/")
		ref := scenario.PodRef(namespace, name)
		if owned[ref] == nil {
			owned[ref] = &holds{}
		}
		owned[ref].cpus = owned[ref].cpus.Union(topology.SetOf(ids...))
	}
	var wrong []string
	for ref, o := range owned {
		at := slices.IndexFunc(s.pods, func(p *pod) bool { return p.ref() == ref && !p.stopped })
		if at < 0 {
			wrong = append(wrong, fmt.Sprintf("I4: %v are still owned by %s, which is gone", o.cpus.Members(), ref))
			continue
		}
		o.lent, o.resizing = s.pods[at].kind.lent, s.unseen[ref] || s.mixed[ref]
	}
	for ref := range s.unseen {
		if owned[ref] == nil && ref.Container() == "" {
			s.referee.gone(ref) // the pod's request has changed since
		}
	}
	wrong = append(wrong, s.referee.audit(owned)...)
	if len(wrong) == 0 {
		maps.DeleteFunc(s.unseen, func(ref scenario.Ref, _ bool) bool { return ref.Container() == "" })
	}
	for _, c := range n.Containers {
		for _, v := range append(slices.Clone(c.Values), c.PodValues...) {
			if !v.Applied && c.State == "running" {
				wrong = append(wrong, fmt.Sprintf("%s/%s: %s=%s is not in force: %s", c.Pod, c.Name, v.Field, v.Value, v.Note))
			}
		}
	}
	return append(wrong, n.Unsaved...)
}

// back waits until the agent is connected to the runtime again.
func (s *storm) back() {
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for deadline := time.Now().Add(2 * time.Second); !s.agent.Connected() && time.Now().Before(deadline); {
		<-look.C
	}
}

// step does one random operation.
func (s *storm) step() {
	if s.rng.IntN(10) > 0 {
		s.back() // for most operations it should run
	}
	if s.containers() < bystanders {
		s.run()
		return
	}
	p := s.pods[s.rng.IntN(len(s.pods))]
	c := &p.ctrs[s.rng.IntN(len(p.ctrs))]
	ref := p.ref().In(c.Name)
	switch what := s.rng.IntN(100); {
	case what < 40:
		s.remove(p)
	case what < 55:
		defer s.watching(p.ref())() // for a moment only the checkpoint has its grant
		s.referee.stopped(s.dirOf(p, ref))
		s.do("remove container", func() error { return s.runtime.RemoveContainer(s.t.Context(), ref) },
			scenario.Step{Remove: []scenario.Ref{ref}}, func() bool { return !s.runs(ref) })
		s.create(p, *c)
		s.start(p, ref)
	case what < 65 && !p.kind.owns:
		c.Resources.Shares = new(2 + s.rng.Uint64N(1024))
		s.update(scenario.Update{Container: ref, Resources: scenario.Resources{Shares: c.Resources.Shares}})
	case what < 80:
		s.resizeOne(p)
	default:
		s.run()
	}
}

// do performs one operation and repeats it on errors, like a kubelet.
func (s *storm) do(what string, direct func() error, step scenario.Step, done func() bool) {
	s.t.Helper()
	fmt.Fprintf(&s.trace, "= %s %v%v%v%v", what, step.Create, step.Start, step.Update, step.Remove)
	var err error
	for range 50 {
		if s.attach == "nri" {
			err = direct()
		} else {
			ctx, stop := context.WithTimeout(s.t.Context(), lastPatience)
			err = s.kubelet.Act(ctx, &step)
			stop()
		}
		if err == nil || done() {
			return
		}
	}
	s.t.Fatalf("%s: %v", what, err)
}

func (s *storm) runs(ref scenario.Ref) bool { _, ok := s.runtime.Spec(ref); return ok }

func (s *storm) run() {
	p := s.make(s.draw())
	sum := sim.SumResources(p.QoS, p.ctrs)
	s.do("run pod", func() error { return s.runtime.RunPodSandbox(s.t.Context(), p.Pod, sum) },
		scenario.Step{Run: []scenario.Run{{Pod: podWith(p.Pod, sum)}}}, func() bool { return slices.Contains(s.runtime.Pods(), p.ref()) })
	s.pods = append(s.pods, p)
	for _, c := range p.ctrs {
		s.create(p, c)
		s.start(p, p.ref().In(c.Name))
	}
}

func podWith(p scenario.Pod, sum scenario.Resources) scenario.Pod {
	p.Resources = &sum
	return p
}

func (s *storm) create(p *pod, c scenario.Container) {
	ref := p.ref().In(c.Name)
	defer s.watching(ref)()
	s.do("create", func() error { return s.runtime.CreateContainer(s.t.Context(), p.ref(), c) },
		scenario.Step{Create: &scenario.Create{Pod: p.ref(), Container: c}}, func() bool { return s.runs(ref) })
}

// start starts a container.
func (s *storm) start(p *pod, ref scenario.Ref) {
	dir, created := s.dirOf(p, ref), s.created(ref)
	var begun atomic.Bool // the runtime's goroutine reports the failure
	s.next = func() {
		if begun.Swap(true) {
			return
		}
		fmt.Fprintf(&s.trace, "= %d faults", s.plan.Faults())
		fmt.Fprintf(&s.trace, "= started %s owns %v", ref, s.given(ref, created).Members())
		s.referee.started(dir, runs{ref: ref, reclaimed: p.kind.reclaimed}, s.given(ref, created), p.kind.lent)
	}
	defer func() {
		if p.kind.owns && s.given(ref, created).Empty() {
			// It runs without a record. From now on only the checkpoint, which may be lost, has its pod's grant.
			s.mixed[p.ref()] = true
			s.referee.gone(p.ref())
		}
	}()
	s.do("start", func() error { return s.runtime.StartContainer(s.t.Context(), ref) }, scenario.Step{Start: ref}, begun.Load)
}

// owns returns the CPUs that a container owns by the agent's status.
func (s *storm) owns(ref scenario.Ref) topology.Set {
	found, ok := s.agent.Source().Explain(ref.Names())
	if !ok || len(found) != 1 || found[0].CPUGroup != "exclusive" {
		return topology.Set{}
	}
	ids, err := topology.ParseList(found[0].CPUs)
	s.must("CPUs it owns", err)
	return topology.SetOf(ids...)
}

// given returns the CPUs that the agent reports for a container that is about to start, if the container was created
// with them. An agent that was stopped at the creation did not decide them.
func (s *storm) given(ref scenario.Ref, created topology.Set) topology.Set {
	if owned := s.owns(ref); s.agent.Connected() && created == owned {
		return owned
	}
	return topology.Set{}
}

// created returns the CPUs of a container's creation.
func (s *storm) created(ref scenario.Ref) topology.Set {
	spec, ok := s.runtime.Spec(ref)
	if !ok || spec.Linux == nil || spec.Linux.Resources == nil || spec.Linux.Resources.CPU == nil {
		return topology.Set{}
	}
	ids, err := topology.ParseList(spec.Linux.Resources.CPU.Cpus)
	s.must("CPUs it is created with", err)
	return topology.SetOf(ids...)
}

func (s *storm) dirOf(p *pod, ref scenario.Ref) string { return s.node.dir(p, ref) }

func (s *storm) remove(p *pod) {
	for _, c := range p.ctrs {
		s.referee.stopped(s.dirOf(p, p.ref().In(c.Name)))
	}
	s.referee.gone(p.ref())
	p.stopped = true
	s.do("remove pod", func() error { return s.runtime.RemovePodSandbox(s.t.Context(), p.ref()) },
		scenario.Step{Remove: []scenario.Ref{p.ref()}}, func() bool { return !slices.Contains(s.runtime.Pods(), p.ref()) })
	s.pods = slices.DeleteFunc(s.pods, func(o *pod) bool { return o == p })
}

// watching returns a function that notes the containers and pods whose changes the agent has missed since.
func (s *storm) watching(refs ...scenario.Ref) func() {
	syncs, there := s.syncs.Load(), s.agent.Connected()
	return func() {
		for _, ref := range refs {
			if !there || !s.agent.Connected() || s.syncs.Load() != syncs {
				s.unseen[ref] = true
			}
		}
	}
}

func (s *storm) update(u scenario.Update) {
	defer s.watching(u.Container, u.Container.Pod())()
	s.do("update", func() error {
		return u.WithPodWrites(s.runtime.SetPodCgroup, func() error { return s.runtime.UpdateContainer(s.t.Context(), u.Container, u.Resources) })
	}, scenario.Step{Update: &u}, func() bool { return false })
}

// resizeOne resizes an owner in place.
func (s *storm) resizeOne(p *pod) {
	if !p.kind.owns {
		return
	}
	main := &p.ctrs[0]
	cpus := 1 + s.rng.IntN(p.kind.milli[1]/1000+2)
	grows := int64(cpus)*100_000 > *main.Resources.Quota
	main.Resources.Shares, main.Resources.Quota = new(uint64(cpus)*1024), new(int64(cpus)*100_000)
	u := scenario.Update{Container: p.ref().In(main.Name), Resources: scenario.Resources{
		Shares: main.Resources.Shares, Quota: main.Resources.Quota, Period: main.Resources.Period,
	}}
	if sum := sim.SumResources(p.QoS, p.ctrs); grows {
		u.Pod = &sum
	} else {
		u.PodAfter = &sum
	}
	s.resized[p.ref()] = true
	s.referee.resizing(p.ref(), true, topology.Set{})
	s.update(u)
	var now topology.Set
	for _, c := range p.ctrs {
		now = now.Union(s.owns(p.ref().In(c.Name)))
	}
	fmt.Fprintf(&s.trace, "= resized %s to %d: owns %v", p.ref(), cpus, now.Members())
	s.referee.resizing(p.ref(), false, now)
}

// released lets the agent release everything, and checks that every container has the requested values and owns
// nothing.
func (s *storm) released() {
	ctx, stop := context.WithTimeout(s.t.Context(), stormPatience)
	defer stop()
	source, can := s.agent.Source().(status.ReleaseSource)
	if !can {
		s.t.Fatal("the agent cannot release")
	}
	r, err := source.Release(ctx)
	r.Failed = slices.DeleteFunc(r.Failed, s.ofResized)
	if err != nil || len(r.Failed)+len(r.LeftToOthers) > 0 {
		s.t.Errorf("released: %+v, %v", r, err)
	}
	for _, p := range s.pods {
		for _, c := range p.ctrs {
			s.checkOriginal(p, c)
		}
	}
	if s.unjudged > s.containers()/2 {
		s.t.Errorf("the agent missed %d of %d containers: too many for this test", s.unjudged, s.containers())
	}
}

// ofResized reports whether a refused value is the quota of a container whose pod was resized in place. After a restart
// of the agent the runtime reports the pod's resources of its creation. In version 1 that quota may be lower than the
// container's, which the kernel refuses.
func (s *storm) ofResized(k api.NotRestored) bool {
	return k.Setting == "cpu.quota" && slices.ContainsFunc(s.pods, func(p *pod) bool {
		return s.resized[p.ref()] && strings.Contains(k.Cgroup, "pod"+s.runtime.UID(p.ref()))
	})
}

func (s *storm) checkOriginal(p *pod, c scenario.Container) {
	ref := p.ref().In(c.Name)
	got, err := s.runtime.State(ref)
	shares, quota := uint64(2), int64(-1)
	if c.Resources.Shares != nil {
		shares = *c.Resources.Shares
	}
	if c.Resources.Quota != nil {
		quota = *c.Resources.Quota
	}
	if s.unseen[ref] {
		// The runtime's copy may have our values, and the checkpoint with the original request may be lost.
		s.unjudged++
		return
	}
	if s.resized[p.ref()] {
		quota = got.Quota
	}
	if err != nil || got.CPUs != "0-63" || got.Quota != quota || c.Resources.Shares != nil && !got.HasShares(shares) {
		s.t.Errorf("%s has %+v (%v) after the release, want quota %d and shares %d on all CPUs", ref, got, err, quota, shares)
	}
}
