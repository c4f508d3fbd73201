package hookserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	hooks "github.com/trimtab/trimtab/api/runtime/v1alpha1"
	"github.com/trimtab/trimtab/internal/extend/breaker"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/sim/clock"
)

var create = []Stage{PreCreateContainer}

// told lists values as strings, each with the server that set it.
func told(out lifecycle.HookServerAnswer) []string {
	var all []string
	for _, v := range out.Values {
		all = append(all, strings.TrimSpace(fmt.Sprintf("%s %s", v.Field, v.Key))+"="+v.String()+" "+v.Why.Source)
	}
	return all
}

func TestChainInOrder(t *testing.T) {
	a, b := serve(t), serve(t)
	a.container = func(_ context.Context, r *hooks.ContainerResourceHookRequest) (*hooks.ContainerResourceHookResponse, error) {
		r.ContainerEnvs["FROM"] = "a"
		return &hooks.ContainerResourceHookResponse{
			ContainerEnvs:      r.ContainerEnvs,
			ContainerResources: &hooks.LinuxContainerResources{CpuQuota: 40000, CpuShares: 300, OomScoreAdj: r.ContainerResources.OomScoreAdj},
		}, nil
	}
	b.container = func(_ context.Context, r *hooks.ContainerResourceHookRequest) (*hooks.ContainerResourceHookResponse, error) {
		if r.ContainerEnvs["FROM"] != "a" || r.ContainerResources.CpuQuota != 40000 {
			return nil, status.Error(codes.InvalidArgument, "a was not asked first")
		}
		r.ContainerResources.CpuQuota = -1
		return &hooks.ContainerResourceHookResponse{ContainerResources: r.ContainerResources}, nil
	}
	s, dir := servers(t, nil)
	register(t, dir, "20-b.json", Registration{Endpoint: b.socket, Policy: Fail, Stages: create})
	register(t, dir, "10-a.json", Registration{Endpoint: a.socket, Stages: create})
	s.Reload()
	ev := sample()
	out, err := s.Ask(t.Context(), ev)
	if err != nil || len(out.Problems) > 0 {
		t.Fatal(err, out.Problems)
	}
	want := []string{"cpu.quota=-1 20-b.json", "cpu.shares=300 10-a.json", "env FROM=a 10-a.json"}
	if d := cmp.Diff(want, told(out)); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(sample(), ev); d != "" {
		t.Errorf("the event was changed: %s", d)
	}
}

// TestWhatServersSee: a call has everything that a stateless server needs, at each stage.
func TestWhatServersSee(t *testing.T) {
	f := serve(t)
	s, dir := servers(t, nil)
	register(t, dir, "a.json", Registration{Endpoint: f.socket, Stages: []Stage{PreCreateContainer, PreStartContainer, PreRunPodSandbox}})
	s.Reload()
	ev := sample()
	for _, kind := range []lifecycle.Kind{lifecycle.CreateContainer, lifecycle.StartContainer, lifecycle.RunPodSandbox} {
		ev.Kind = kind
		if out, err := s.Ask(t.Context(), ev); err != nil || !out.Empty() {
			t.Fatal(kind, err, out)
		}
		if kind == lifecycle.RunPodSandbox {
			p := f.lastPod
			if p.PodMeta.Uid != "uid-1" || p.CgroupParent == "" || p.Labels["app"] != "web" || p.Annotations["a"] != "1" || p.RuntimeHandler != "runc" || p.Resources.CpuShares != 512 {
				t.Errorf("%v", p)
			}
			continue
		}
		r := f.last
		if id := r.ContainerMeta.Id; (kind == lifecycle.CreateContainer) != (id == "") {
			t.Errorf("%s: id %q", kind, id)
		}
		if r.PodMeta.Name != "web-0" || r.PodMeta.Namespace != "shop" || r.PodLabels["app"] != "web" || r.PodAnnotations["a"] != "1" || r.PodCgroupParent == "" ||
			r.ContainerMeta.Name != "app" || r.ContainerMeta.Attempt != 2 || r.ContainerEnvs["EQ"] != "a=b" || r.ContainerResources.MemoryLimitInBytes != 1<<30 ||
			r.ContainerResources.OomScoreAdj != 900 || len(r.ContainerResources.HugepageLimits) != 1 || r.PodResources.CpuShares != 512 {
			t.Errorf("%s: %v", kind, r)
		}
	}
}

// TestFailingServers tests the policies Fail and Ignore with each kind of failure.
func TestFailingServers(t *testing.T) {
	hang := serve(t)
	hang.container = func(ctx context.Context, _ *hooks.ContainerResourceHookRequest) (*hooks.ContainerResourceHookResponse, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	refuse := serve(t)
	refuse.container = func(context.Context, *hooks.ContainerResourceHookRequest) (*hooks.ContainerResourceHookResponse, error) {
		return nil, status.Error(codes.PermissionDenied, "not\nthis one")
	}
	big := serve(t)
	big.container = func(context.Context, *hooks.ContainerResourceHookRequest) (*hooks.ContainerResourceHookResponse, error) {
		return &hooks.ContainerResourceHookResponse{ContainerEnvs: map[string]string{"X": strings.Repeat("x", maxAnswerBytes)}}, nil
	}
	panics := serve(t)
	panics.server.Stop()
	silent := filepath.Join(t.TempDir(), "s") // the server accepts and never answers
	l, err := net.Listen("unix", silent)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	garbage := filepath.Join(t.TempDir(), "s")
	g, err := net.Listen("unix", garbage)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	go func() {
		for {
			c, err := g.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("HTTP/1.1 200 OK\r\n\r\nhello"))
			c.Close()
		}
	}()
	for name, c := range map[string]struct{ endpoint, want string }{
		"hangs": {hang.socket, "no answer within"}, "refuses": {refuse.socket, "PermissionDenied: not?this one"},
		"oversized": {big.socket, "ResourceExhausted"}, "dead": {panics.socket, "cannot be reached"},
		"never there": {filepath.Join(t.TempDir(), "none"), "no such file"}, "silent": {silent, "no answer within"},
		"no gRPC": {garbage, "cannot be reached"}, "a file": {os.Args[0], "is not a socket"},
	} {
		t.Run(name, func(t *testing.T) {
			timeout := time.Minute // a busy machine must not make the other failures a missing answer
			if c.want == "no answer within" {
				timeout = 300 * time.Millisecond
			}
			s, dir := servers(t, func(o *Options) { o.Timeout = timeout })
			for _, policy := range []Policy{"", Fail} {
				register(t, dir, "a.json", Registration{Endpoint: c.endpoint, Policy: policy, Stages: create})
				s.Reload()
				out, err := s.Ask(t.Context(), sample())
				refusal := (*Refusal)(nil)
				switch {
				case policy == Fail && (!errors.As(err, &refusal) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "a.json")):
					t.Errorf("Fail: %v", err)
				case policy == "" && (err != nil || len(out.Values) > 0 || len(out.Problems) != 1 || !strings.Contains(out.Problems[0].Reason, c.want)):
					t.Errorf("Ignore: %v, %+v", err, out)
				}
			}
		})
	}
}

// TestCircuit: a server that failed several times in a row is not called for a while, so that no event
// waits for it, and is called again afterwards.
func TestCircuit(t *testing.T) {
	f := serve(t)
	f.server.Stop()
	now := time.Unix(1000, 0)
	counted := map[Result]int{}
	s, dir := servers(t, func(o *Options) {
		o.Now = func() time.Time { return now }
		o.Recorder = countResults(counted)
	})
	register(t, dir, "a.json", Registration{Endpoint: f.socket, Stages: create})
	s.Reload()
	for range breaker.MaxFailures + 2 {
		if _, err := s.Ask(t.Context(), sample()); err != nil {
			t.Fatal(err)
		}
	}
	if counted[Unreachable] != breaker.MaxFailures || counted[Skipped] != 2 {
		t.Fatalf("counted %v", counted)
	}
	if st, _ := s.States(); !st[0].Suspended || st[0].Failed != breaker.MaxFailures || st[0].Error == "" {
		t.Errorf("%+v", st)
	}
	now = now.Add(breaker.MinPause)
	f.start(t)
	deadline := time.Now().Add(time.Minute)
	for counted[Done] == 0 && time.Now().Before(deadline) { // gRPC has its own back-off
		now = now.Add(breaker.MaxPause)
		if _, err := s.Ask(t.Context(), sample()); err != nil {
			t.Fatal(err)
		}
	}
	if st, _ := s.States(); counted[Done] != 1 || st[0].Suspended || st[0].Error != "" {
		t.Errorf("it is back: %v, %+v", counted, st)
	}
}

// TestGivenUp: neither a kubelet that cancels its call, nor earlier servers that use up the time, count as
// a failure of the server; an answer with the code "deadline exceeded" or "canceled" counts as an answer.
func TestGivenUp(t *testing.T) {
	f := serve(t)
	var answers atomic.Uint32 // a code; 0 does not answer
	f.container = func(ctx context.Context, _ *hooks.ContainerResourceHookRequest) (*hooks.ContainerResourceHookResponse, error) {
		if code := answers.Load(); code != 0 {
			return nil, status.Error(codes.Code(code), "of something else")
		}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	counted := map[Result]int{}
	s, dir := servers(t, func(o *Options) { o.Recorder = countResults(counted) })
	register(t, dir, "a.json", Registration{Endpoint: f.socket, Stages: create})
	s.Reload()
	for range breaker.MaxFailures + 1 {
		ctx, cancel := context.WithCancel(t.Context())
		gives := time.AfterFunc(20*time.Millisecond, cancel)
		out, err := s.Ask(ctx, sample())
		gives.Stop()
		cancel()
		if err != nil || len(out.Problems) != 1 || !strings.Contains(out.Problems[0].Reason, "the caller cancelled the event") {
			t.Fatalf("%v, %+v", err, out)
		}
	}
	// Earlier servers or waits used up the time of the event.
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	out, err := s.Ask(ctx, sample())
	if cancel(); err != nil || len(out.Problems) != 1 || !strings.Contains(out.Problems[0].Reason, "the event's deadline passed") {
		t.Fatalf("%v, %+v", err, out)
	}
	q := stageCall{s, stageAt(t, PreCreateContainer), s.serversOf(PreCreateContainer), time.Now().Add(20 * time.Millisecond)}
	if out, err := q.callForContainer(t.Context(), &pAsk{}); err != nil || len(out.Problems) != 1 || !strings.Contains(out.Problems[0].Reason, "the event's deadline passed") {
		t.Fatalf("%v, %+v", err, out)
	}
	q.deadline = time.Now().Add(-time.Second)
	if out, err := q.callForContainer(t.Context(), &pAsk{}); err != nil || len(out.Problems) != 1 || !strings.Contains(out.Problems[0].Reason, "not called: the event's deadline passed") {
		t.Fatalf("%v, %+v", err, out)
	}
	if st, _ := s.States(); st[0].Suspended || st[0].Failed != 0 || counted[EventEnded] != breaker.MaxFailures+4 || counted[TimedOut] != 0 {
		t.Fatalf("%+v, counted %v", st, counted)
	}
	for _, code := range []codes.Code{codes.Canceled, codes.DeadlineExceeded, codes.Canceled, codes.DeadlineExceeded} {
		answers.Store(uint32(code))
		if out, err := s.Ask(t.Context(), sample()); err != nil || len(out.Problems) != 1 || !strings.Contains(out.Problems[0].Reason, "answered with the gRPC error "+code.String()) {
			t.Fatalf("%v, %+v", err, out)
		}
	}
	if st, _ := s.States(); st[0].Suspended || counted[Failed] != 4 {
		t.Fatalf("%+v, counted %v", st, counted)
	}
}

func stageAt(t *testing.T, at Stage) StageDescription {
	t.Helper()
	for _, i := range stages {
		if i.Stage == at {
			return i
		}
	}
	t.Fatal("no such stage")
	return StageDescription{}
}

// TestCircuitThroughSteps steps the wall clock while a server is not called: the duration stays the same.
func TestCircuitThroughSteps(t *testing.T) {
	for _, step := range []time.Duration{-time.Hour, time.Hour} {
		clk := clock.New(func() time.Time { return time.Unix(1e9, 0) })
		l := &connection{}
		for range breaker.MaxFailures {
			l.endCall(&callError{noAnswer: true, message: "planted"}, clk.Now())
		}
		clk.Step(step)
		if clk.Advance(breaker.MinPause - 1); l.beginCall(clk.Now()) == nil {
			t.Errorf("a step by %v: called before its rest is over", step)
		}
		if clk.Advance(1); l.beginCall(clk.Now()) != nil {
			t.Errorf("a step by %v: not called after its rest", step)
		}
	}
}

// countResults counts calls by result.
type countResults map[Result]int

func (c countResults) CountCall(_ string, _ Stage, r Result, _ time.Duration) { c[r]++ }

func TestTell(t *testing.T) {
	f := serve(t)
	s, dir := servers(t, nil)
	register(t, dir, "a.json", Registration{Endpoint: f.socket, Stages: []Stage{PostStartContainer, PostStopContainer, PostStopPodSandbox, PreRemoveRunPodSandbox}})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Run(ctx) }()
	eventually(t, "the file is read", func() bool { return s.Asks(lifecycle.StopContainer) })
	ev := sample()
	for _, ev.Kind = range []lifecycle.Kind{lifecycle.PostStartContainer, lifecycle.StopContainer, lifecycle.StopPodSandbox, lifecycle.RemovePodSandbox} {
		s.Notify(ev)
	}
	eventually(t, "all events are reported", func() bool { return len(f.seen()) == 3 })
	if d := cmp.Diff([]string{"started", "stopped", "pod stopped"}, f.seen()); d != "" {
		t.Error(d)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !is() {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// TestSkipped: a pod can opt out of hook servers.
func TestSkipped(t *testing.T) {
	for value, asked := range map[string]int{"true": 0, "false": 1} {
		f := serve(t)
		s, dir := servers(t, nil)
		register(t, dir, "a.json", Registration{Endpoint: f.socket, Policy: Fail, Stages: []Stage{PreCreateContainer, PostStopContainer}})
		s.Reload()
		ev := sample()
		ev.Pod.Labels[SkipLabel] = value
		if _, err := s.Ask(t.Context(), ev); err != nil {
			t.Fatal(err)
		}
		ev.Kind = lifecycle.StopContainer
		s.Notify(ev)
		if len(s.notices) != asked {
			t.Errorf("%s: %d notices are pending", value, len(s.notices))
		}
		if value == "true" && len(f.seen()) > 0 {
			t.Errorf("called: %v", f.seen())
		}
	}
}
