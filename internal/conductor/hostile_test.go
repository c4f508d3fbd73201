package conductor_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/nodeview"
	"github.com/trimtab/trimtab/internal/topology"
	"github.com/trimtab/trimtab/test/clock"
)

// moreProblems ends a list of problems that was too long. It is a warning, which a restart does
// not report again.
const moreProblems = "more problems"

// stage is a node with an owner in a trusted namespace, and the log.
type stage struct {
	*model
	said   bytes.Buffer
	stolen string
}

func newStage(t testing.TB, v cgroup.Version, strict bool) *stage {
	t.Helper()
	s := &stage{model: newModel(t, v, faults{})}
	s.log = &s.said
	s.policy.Strict = strict
	s.policy.Pools.Reserved = topology.SetOf(0)
	s.policy.Rules = intent.Rules{
		{Kinds: []intent.Kind{"*"}, Namespaces: []string{"trusted"}, Decision: intent.Allow, Name: "rule 1"},
		{Kinds: []intent.Kind{"*"}, Namespaces: []string{"locked"}, Decision: intent.Refuse, Name: "rule 2"},
	}
	// What a class gives by itself is not an attack; other tests compare it.
	s.policy.Hooks = []hook.Hook{hook.CPUSetOptions{UnsetQuota: true}, hook.BatchOptions{}, hook.GPU{}, hook.Normalization{Ratio: 100},
		hook.Burst{}, hook.Preemption{Yield: hook.YieldIdle, MemoryHigh: 80, MemoryLow: 50, MemoryMin: 10, KillTogether: true, KernelFiles: lacks(v)}}
	s.policy.Hooks = append(s.policy.Hooks, injectors()...)
	s.con = nil
	s.boot()
	owner, _ := s.run(attack{namespace: "trusted", name: "owner", annotations: cpuset("2-3")}, true)
	if owner == nil || s.effective(owner) != "2-3" {
		t.Fatal("the owner does not own its CPUs")
	}
	s.stolen = owner.Annotations[conductor.RecordKey]
	return s
}

// injectors are the hooks that serve annotations of NRI's plugins, with all that can be
// switched on: authorization alone is to hold them back.
func injectors() []hook.Hook {
	return []hook.Hook{
		hook.Ulimits{}, hook.IOPriorityOptions{Realtime: true}, hook.SchedulerOptions{Realtime: true, Deadline: true}, hook.MemoryPolicy{}, hook.SysctlOptions{Allowed: []string{"*"}},
		hook.DeviceNodes{Allowed: []lifecycle.Device{
			{Host: "/dev/mem", Type: "c", Major: 1, Minor: 1}, {Host: "/dev/sda", Type: "b", Major: 8}, {Host: "/dev/null", Type: "c", Major: 1, Minor: 3},
		}},
		hook.MountsOptions{Allowed: []string{"/", "/etc/shadow", "/data"}, Writable: []string{"/", "/data"}},
		hook.CDIDevicesOptions{Allowed: []string{"*"}}, hook.NetworkDevicesOptions{Allowed: []string{"*"}}, askedHooks(),
		hook.MemoryQoS{SwapPercent: map[string]int{"bronze": 50}, Files: []string{"memory.high", "memory.swap.max"}},
		hook.WritableCgroups{}, hook.IntelRDT{Classes: []string{"*"}, Schemata: true},
	}
}

// askedHooks are OCI hooks that containers have by an annotation.
func askedHooks() hook.Hook {
	def, err := hook.ReadHookFile(lifecycle.HookFile{Path: "/h/10-asked.json", Text: `{"version":"1.0.0","hook":{"path":"/bin/sh","args":["sh","-c","id"]},` +
		`"when":{"annotations":{"^trace\\.example/(.*)$":"^(yes|.*root.*)$"}},"stages":["createRuntime"]}`})
	must(err)
	return hook.OCIHooks{Files: []hook.OCIHookFile{def}}
}

// lacks are the files of preemption that a kernel of this version does not have.
func lacks(v cgroup.Version) map[string]lifecycle.Support {
	out := map[string]lifecycle.Support{}
	for _, file := range hook.PreemptionFiles() {
		if _, err := cgroup.FeatureFile(file, v); err != nil {
			out[file] = lifecycle.NotSupported
		}
	}
	return out
}

// run runs a pod with one container as kubelet and runtime would. speak is false to leave out
// its labels and annotations.
func (s *stage) run(a attack, speak bool) (*modelCtr, error) {
	s.n++
	p := &modelPod{Pod: lifecycle.Pod{
		ID: fmt.Sprintf("sandbox-%d", s.n), UID: fmt.Sprintf("uid-%d", s.n), Name: "p", Namespace: "default",
	}}
	if a.namespace != "" {
		p.Namespace = a.namespace
	}
	if a.name == "owner" {
		p.Name = a.name
	}
	if a.pod != "" {
		p.Name = a.pod
	}
	p.CgroupParent = strings.ReplaceAll("/kubepods/"+a.parent+"/pod"+p.UID, "//", "/")
	c := &modelCtr{pod: p, Container: lifecycle.Container{
		ID: fmt.Sprintf("ctr-%d", s.n), PodID: p.ID, Name: "a", State: lifecycle.StateCreated,
		CgroupsPath: fmt.Sprintf("%s/ctr-%d", p.CgroupParent, s.n), CreatedAt: int64(s.n),
	}}
	if a.container != "" {
		c.Name = a.container
	}
	r := lifecycle.Resources{CPU: lifecycle.CPU{Shares: lifecycle.Some(uint64(2048)), Quota: lifecycle.Some(int64(200000))}}
	r.Memory.Limit = lifecycle.Some(int64(1 << 30))
	if a.quota != 0 {
		r.CPU.Shares, r.CPU.Quota = lifecycle.Some(a.shares), lifecycle.Some(a.quota)
	}
	c.Resources, c.asked = r, r
	p.Resources = clone(&r)
	if speak {
		p.Labels, p.Annotations = a.labels, a.annotations
		if a.record == "stolen" {
			a.record = s.stolen
		}
		if a.record != "" {
			c.Annotations = map[string]string{conductor.RecordKey: a.record}
		}
	}
	must(s.kernel.MkdirRunc(strings.TrimPrefix(p.CgroupParent, "/")))
	pod := &modelCtr{pod: p, Container: lifecycle.Container{CgroupsPath: p.CgroupParent, Resources: r}}
	s.toKernel(pod)
	s.handle(lifecycle.Event{Kind: lifecycle.RunPodSandbox, Pod: clone(&p.Pod)})
	ev := lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: clone(&p.Pod), Container: clone(&c.Container)}
	ans, err := s.con.Handle(context.Background(), carrier{}, ev)
	if err != nil {
		return nil, err
	}
	s.apply(c, ans.Values)
	for _, v := range ans.Values {
		if v.Field == lifecycle.MountPoint || v.Field == lifecycle.DeviceNode {
			c.Mounts = append(c.Mounts, lifecycle.Mount{Destination: v.Key})
		}
	}
	s.pods = append(s.pods, p)
	p.ctrs = append(p.ctrs, c)
	s.start(c)
	return c, nil
}

// inForce returns everything that the kernel and the spec show of a container and its pod.
func (s *stage) inForce(c *modelCtr) map[string]string {
	tree := &cgroup.Tree{FS: s.kernel, Version: s.version}
	got := map[string]string{
		"cpus": s.effective(c), "env": fmt.Sprint(c.Env), "mounts": fmt.Sprint(c.Mounts), "created": fmt.Sprint(c.created), "owned": fmt.Sprint(len(nodeview.Status(s.con).CPUs.Grants)),
	}
	for whose, dir := range map[string]string{"container": c.dir(), "pod": strings.TrimPrefix(c.pod.CgroupParent, "/")} {
		for _, f := range []lifecycle.Field{lifecycle.CPUShares, lifecycle.CPUQuota, lifecycle.MemoryLimit} {
			text, err := tree.Read(dir, f, "")
			must(err)
			got[whose+" "+f.String()] = text
		}
		for _, file := range slices.Concat(hook.PreemptionFiles(), hook.MemoryQoSFiles(), []string{"cpu.max.burst"}) {
			if _, err := cgroup.FeatureFile(file, s.version); err == nil {
				text, err := tree.Read(dir, lifecycle.Unified, file)
				must(err)
				got[whose+" "+file] = text
			}
		}
	}
	return got
}

// reportedProblems returns the problems in explain and in the journal, and the size of their text.
func (s *stage) reportedProblems(c *modelCtr) (explained, journalled []lifecycle.Problem, size int) {
	found, _ := nodeview.Explain(s.con, c.pod.Namespace, c.pod.Name, "")
	for _, e := range found {
		explained = append(explained, e.Problems...)
	}
	events, _ := s.con.Journal().Since(0)
	for _, e := range events {
		journalled = append(journalled, e.Problems...)
	}
	text, err := json.Marshal([]any{found, events})
	must(err)
	return explained, journalled, len(text)
}

func speaksOf(problems []lifecycle.Problem, want string) bool {
	for _, p := range problems {
		if strings.Contains(p.String(), want) {
			return true
		}
	}
	return false
}

// bounds are far above the cost of any attack and far below what would delay a pod. The runtime
// gives an event two seconds.
const (
	longest = 2 * time.Second
	largest = 64 << 10
)

// TestHostile plays each attack, and the same pod without labels and annotations. The kernel
// must show the same for both, and explain, journal and log must have the refusal.
func TestHostile(t *testing.T) {
	t.Parallel()
	for _, v := range []cgroup.Version{cgroup.V1, cgroup.V2} {
		for _, a := range attacks() {
			t.Run(v.String()+"/"+a.name, func(t *testing.T) {
				t.Parallel()
				meek := newStage(t, v, false)
				silent, _ := meek.run(a, false)
				want := meek.inForce(silent)
				s := newStage(t, v, false)
				start := time.Now()
				c, err := s.run(a, true)
				if took := time.Since(start); took > longest {
					t.Errorf("took %s", took)
				}
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, s.inForce(c)); diff != "" {
					t.Error("something was granted", diff)
				}
				checkTold(t, s, c, a.want)
				s.said.Reset()
				s.restart()
				if diff := cmp.Diff(want, s.inForce(c)); diff != "" {
					t.Error("something was granted by a restart", diff)
				}
				if a.record == "" && a.want != moreProblems { // the agent's record has replaced the forged one
					checkTold(t, s, c, a.want)
				}
				if len(s.broken) > 0 {
					t.Error(s.broken)
				}
			})
		}
	}
}

// checkTold checks that explain, the journal and the log report a problem with this text.
func checkTold(t *testing.T, s *stage, c *modelCtr, want string) {
	t.Helper()
	explained, journalled, size := s.reportedProblems(c)
	if want != "" && (!speaksOf(explained, want) || !speaksOf(journalled, want)) {
		t.Errorf("explained %v, journalled %v; want %q in both", explained, journalled, want)
	}
	if want == "" && len(explained) > 0 {
		t.Errorf("explained %v, want nothing", explained)
	}
	if log := s.said.String(); want != "" && !strings.Contains(log, strings.ReplaceAll(want, `"`, `\"`)) {
		t.Errorf("the log does not say %q:\n%s", want, log)
	}
	if size > largest || s.said.Len() > largest {
		t.Errorf("%d bytes are shown, %d logged", size, s.said.Len())
	}
	for _, r := range s.said.String() {
		if r != '\n' && !unicode.IsPrint(r) {
			t.Fatalf("%U in the log", r)
		}
	}
	if strings.Contains(s.said.String(), "\nlevel=INFO") {
		t.Error("a name wrote a line of the log")
	}
	for _, p := range explained {
		if len(p.String()) > 1200 {
			t.Errorf("a problem of %d bytes", len(p.String()))
		}
	}
}

// TestHostileStrict: strict mode refuses each attack's container with the expected sentence.
func TestHostileStrict(t *testing.T) {
	t.Parallel()
	for _, a := range attacks() {
		if a.want == "" || a.want == moreProblems || a.others {
			continue
		}
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, cgroup.V2, true)
			a.want = strings.TrimPrefix(a.want, "assigned-cpus: ") // the class is refused first
			if _, err := s.run(a, true); err == nil || !strings.Contains(err.Error(), a.want) || len(err.Error()) > 1200 {
				t.Errorf("%v, want %q", err, a.want)
			}
			if n := len(nodeview.Status(s.con).CPUs.Grants); n != 1 {
				t.Errorf("%d grants", n)
			}
		})
	}
}

// TestHostileCanFail shows that the suite finds a fault: with rules that allow everything,
// attacks succeed.
func TestHostileCanFail(t *testing.T) {
	granted := 0
	for _, a := range attacks() {
		s, meek := newStage(t, cgroup.V2, false), newStage(t, cgroup.V2, false)
		s.policy.Rules = intent.Rules{{Kinds: []intent.Kind{"*"}, Namespaces: []string{"*"}, Decision: intent.Allow}}
		s.con.Configure(s.policy, conductor.Tuning{})
		c, _ := s.run(a, true)
		silent, _ := meek.run(a, false)
		if !cmp.Equal(meek.inForce(silent), s.inForce(c)) {
			granted++
		}
	}
	if granted < 8 {
		t.Errorf("with everything allowed only %d attacks are granted anything", granted)
	}
}

// nasty draws annotation texts: pieces of valid ones in wrong combinations.
func nasty() *rapid.Generator[string] {
	pieces := rapid.SampledFrom([]string{
		`{"cpuset":`, `"2-3"`, `"4-5"`, `"1,4-7"`, `}`, `,`, `"numaNodeResources":`, `[{"node":1,"resources":{"cpu":"2"}}]`, `[`, `]`,
		`{"containers":{"a":{"requests":{"kubernetes.io/batch-cpu":`, `"64000"`, `9223372036854775807`, `-1`, `1e9`, `"0.5"`, `}}}}`,
		`{"gpu":[{"minor":`, `0}]}`, `null`, "\x00", "\u202e", "\xff", `"`, `../`,
	})
	whole := rapid.SampledFrom([]string{
		"", `{"cpuset":"2-3"}`, `{"cpuset":"4-5"}`, `{"cpuset":"1,4-7"}`, `{"cpuset":"4","numaNodeResources":[{"node":1,"resources":{"cpu":"1"}}]}`,
		`{"containers":{"a":{"requests":{"kubernetes.io/batch-cpu":"64000"}}}}`, `{"containers":{"a":{}}}`, `{"gpu":[{"minor":0}]}`,
	})
	return rapid.OneOf(whole, rapid.Custom(func(t *rapid.T) string { return strings.Join(rapid.SliceOfN(pieces, 1, 8).Draw(t, "pieces"), "") }), rapid.String())
}

// TestHostileHistories draws pods. A pod with a limit of two CPUs never owns more, and never
// loses its limit unless it owns CPUs. If nothing is allowed, nothing changes.
func TestHostileHistories(t *testing.T) {
	meek := newStage(t, cgroup.V2, false)
	first, _ := meek.run(attack{namespace: "locked"}, false)
	want := meek.inForce(first)
	rapid.Check(t, func(rt *rapid.T) {
		a := attack{
			namespace: rapid.SampledFrom([]string{"locked", "default"}).Draw(rt, "namespace"),
			parent:    rapid.SampledFrom([]string{"", "burstable"}).Draw(rt, "parent"),
			labels:    labelled(rapid.SampledFrom([]string{"", "LSR", "LS", "BE", "SYSTEM", "x"}).Draw(rt, "class")),
			annotations: map[string]string{
				intent.KoordResourceStatus: nasty().Draw(rt, "status"),
				intent.KoordExtended:       nasty().Draw(rt, "extended"),
				intent.KoordDevices:        nasty().Draw(rt, "devices"),
			},
			record: rapid.OneOf(rapid.Just(""), rapid.Just("stolen"), rapid.String()).Draw(rt, "record"),
		}
		judge(rt, newStage(t, cgroup.V2, false), a, want)
	})
}

type failer interface{ Errorf(string, ...any) }

// judge plays a pod with a limit and a request of two CPUs.
func judge(t failer, s *stage, a attack, want map[string]string) {
	c, err := s.run(a, true)
	if err != nil {
		t.Errorf("refused: %v", err)
		return
	}
	s.restart()
	got := s.inForce(c)
	owns := got["owned"] == "2"
	switch {
	case a.namespace == "locked" && !cmp.Equal(want, got):
		t.Errorf("something was granted: %s", cmp.Diff(want, got))
	case owns && len(idsOf(got["cpus"])) > 2:
		t.Errorf("it owns CPUs %s", got["cpus"])
	case owns && len(intersect(idsOf(got["cpus"]), []int{0, 2, 3})) > 0:
		t.Errorf("it owns CPUs %s, which are reserved or another's", got["cpus"])
	case got["container memory.limit"] != want["container memory.limit"], got["pod memory.limit"] != want["pod memory.limit"],
		got["container cpu.shares"] != want["container cpu.shares"],
		!owns && (got["container cpu.quota"] != want["container cpu.quota"]):
		t.Errorf("limits changed: %s", cmp.Diff(want, got))
	}
	if _, _, size := s.reportedProblems(c); size > largest || s.said.Len() > largest {
		t.Errorf("%d bytes are shown, %d logged", size, s.said.Len())
	}
	if len(s.broken) > 0 {
		t.Errorf("%v", s.broken)
	}
}

// FuzzHostile feeds foreign text to everything a pod's author can write.
func FuzzHostile(f *testing.F) {
	for _, a := range attacks() {
		if len(fmt.Sprint(a.annotations))+len(a.record) < 1000 {
			f.Add(a.namespace == "locked", a.labels[intent.KoordQoSClass], a.annotations[intent.KoordResourceStatus],
				a.annotations[intent.KoordExtended], a.annotations[intent.KoordDevices], a.record)
		}
	}
	f.Fuzz(func(t *testing.T, locked bool, class, resourceStatus, extendedSpec, allocated, record string) {
		clock.Bound(t, len(class)+len(resourceStatus)+len(extendedSpec)+len(allocated)+len(record), func() {
			meek := newStage(t, cgroup.V2, false)
			a := attack{namespace: "default", labels: labelled(class), record: record, annotations: map[string]string{
				intent.KoordResourceStatus: resourceStatus, intent.KoordExtended: extendedSpec, intent.KoordDevices: allocated,
			}}
			if locked {
				a.namespace = "locked"
			}
			silent, _ := meek.run(a, false)
			judge(t, newStage(t, cgroup.V2, false), a, meek.inForce(silent))
		})
	})
}
