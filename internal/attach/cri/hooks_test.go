package cri_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	hooks "github.com/trimtab/trimtab/api/runtime/v1alpha1"
	"github.com/trimtab/trimtab/internal/attach/cri"
	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/sim/census"
	"github.com/trimtab/trimtab/test/attachtest"
)

// fieldProxy calls hook servers as the existing runtime proxy does (koordinator 1.8, pkg/runtimeproxy): it
// finds the server by its file, sends no id at a creation, and merges answers by that proxy's own rules.
type fieldProxy struct {
	t       *testing.T
	calls   hooks.RuntimeHookServiceClient
	runtime api.RuntimeServiceClient
	stored  map[string]*hooks.ContainerResourceHookRequest // by id
}

// newHooked returns an attachment that such a proxy calls.
func newHooked(t *testing.T) (*rig, *fieldProxy) {
	t.Helper()
	dir := t.TempDir()
	g := &rig{t: t, dir: dir, runtime: startRuntime(t, filepath.Join(dir, "r.sock")), h: newHandler()}
	o := g.options(false)
	o.Hooks = &cri.HookService{Socket: filepath.Join(dir, "hooks.sock"), RegistrationFile: filepath.Join(dir, "hookserver.d", "trimtab.json")}
	g.a = cri.New(o)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- g.a.Run(ctx) }()
	g.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	t.Cleanup(func() { g.stop() })

	var file struct {
		Endpoint string   `json:"remote-endpoint"`
		Policy   string   `json:"failure-policy"`
		Stages   []string `json:"runtime-hooks"`
	}
	attachtest.Until(t, "it registers", func() bool {
		text, err := os.ReadFile(o.Hooks.RegistrationFile)
		return err == nil && json.Unmarshal(text, &file) == nil
	})
	if file.Policy != "Ignore" || !slices.Contains(file.Stages, "PreCreateContainer") || file.Endpoint != o.Hooks.Socket {
		t.Errorf("registered %+v", file)
	}
	if entries, err := os.ReadDir(filepath.Dir(o.Hooks.RegistrationFile)); err != nil || len(entries) != 1 {
		t.Errorf("%v beside the registration, %v", entries, err)
	}
	p := &fieldProxy{t: t, stored: map[string]*hooks.ContainerResourceHookRequest{}}
	for to, use := range map[string]func(*grpc.ClientConn){
		file.Endpoint: func(c *grpc.ClientConn) { p.calls = hooks.NewRuntimeHookServiceClient(c) },
		g.runtime.path: func(c *grpc.ClientConn) {
			p.runtime = api.NewRuntimeServiceClient(c)
			g.client = p.runtime
		},
	} {
		conn, err := grpc.NewClient("unix://"+to, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		use(conn)
	}
	return g, p
}

// runPod runs a sandbox, and calls the hook before it.
func (p *fieldProxy) runPod(g *rig) (string, error) {
	c := podConfig()
	c.Labels["io.kubernetes.pod.uid"] = c.Metadata.Uid
	resp, err := p.calls.PreRunPodSandboxHook(g.ctx(), &hooks.PodSandboxHookRequest{
		PodMeta: &hooks.PodSandboxMetadata{Name: c.Metadata.Name, Uid: c.Metadata.Uid, Namespace: c.Metadata.Namespace},
		Labels:  c.Labels, Annotations: c.Annotations, CgroupParent: c.Linux.CgroupParent,
	})
	if err != nil {
		return "", err
	}
	maps.Copy(c.Labels, resp.Labels)
	maps.Copy(c.Annotations, resp.Annotations)
	if resp.CgroupParent != "" {
		c.Linux.CgroupParent = resp.CgroupParent
	}
	r, err := p.runtime.RunPodSandbox(g.ctx(), &api.RunPodSandboxRequest{Config: c})
	return r.GetPodSandboxId(), err
}

func (p *fieldProxy) asked(c *api.ContainerConfig) *hooks.ContainerResourceHookRequest {
	pod, r := podConfig(), c.Linux.Resources
	req := &hooks.ContainerResourceHookRequest{
		PodMeta:              &hooks.PodSandboxMetadata{Name: pod.Metadata.Name, Uid: pod.Metadata.Uid, Namespace: pod.Metadata.Namespace},
		ContainerMeta:        &hooks.ContainerMetadata{Name: c.Metadata.Name, Attempt: c.Metadata.Attempt},
		ContainerAnnotations: c.Annotations, PodLabels: pod.Labels, PodAnnotations: pod.Annotations, PodCgroupParent: pod.Linux.CgroupParent,
		ContainerEnvs: map[string]string{},
		ContainerResources: &hooks.LinuxContainerResources{
			CpuPeriod: r.CpuPeriod, CpuQuota: r.CpuQuota, CpuShares: r.CpuShares, MemoryLimitInBytes: r.MemoryLimitInBytes,
			OomScoreAdj: r.OomScoreAdj, CpusetCpus: r.CpusetCpus, CpusetMems: r.CpusetMems,
		},
	}
	for _, e := range c.Envs {
		req.ContainerEnvs[e.Key] = string(e.Value)
	}
	return req
}

// take merges answered resources over requested ones, as that proxy does.
func take(r *api.LinuxContainerResources, a *hooks.LinuxContainerResources) {
	if a == nil {
		return
	}
	for _, n := range []struct {
		into *int64
		v    int64
	}{{&r.CpuPeriod, a.CpuPeriod}, {&r.CpuShares, a.CpuShares}, {&r.MemoryLimitInBytes, a.MemoryLimitInBytes}} {
		if n.v > 0 {
			*n.into = n.v
		}
	}
	if a.CpuQuota != 0 {
		r.CpuQuota = a.CpuQuota
	}
	if a.OomScoreAdj >= -1000 && a.OomScoreAdj <= 1000 {
		r.OomScoreAdj = a.OomScoreAdj
	}
	r.CpusetCpus, r.CpusetMems = a.CpusetCpus, a.CpusetMems // always
}

func (p *fieldProxy) create(g *rig, pod string, c *api.ContainerConfig) (string, error) {
	req := p.asked(c)
	resp, err := p.calls.PreCreateContainerHook(g.ctx(), req)
	if err != nil {
		return "", err
	}
	take(c.Linux.Resources, resp.ContainerResources)
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	maps.Copy(c.Annotations, resp.ContainerAnnotations)
	if resp.ContainerEnvs != nil {
		c.Envs = nil
		for _, k := range slices.Sorted(maps.Keys(resp.ContainerEnvs)) {
			c.Envs = append(c.Envs, &api.KeyValue{Key: k, Value: []byte(resp.ContainerEnvs[k])})
		}
	}
	r, err := p.runtime.CreateContainer(g.ctx(), &api.CreateContainerRequest{PodSandboxId: pod, Config: c})
	if err != nil {
		return "", err
	}
	req.ContainerMeta.Id = r.ContainerId
	p.stored[r.ContainerId] = req
	return r.ContainerId, nil
}

func (p *fieldProxy) start(g *rig, id string) error {
	if _, err := p.calls.PreStartContainerHook(g.ctx(), p.stored[id]); err != nil {
		return err
	}
	if _, err := p.runtime.StartContainer(g.ctx(), &api.StartContainerRequest{ContainerId: id}); err != nil {
		return err
	}
	_, err := p.calls.PostStartContainerHook(g.ctx(), p.stored[id])
	return err
}

// TestFieldProxy: an existing runtime proxy calls the agent's engine.
func TestFieldProxy(t *testing.T) {
	g, p := newHooked(t)
	pod, err := p.runPod(g)
	if err != nil {
		t.Fatal(err)
	}
	g.h.says(lifecycle.CreateContainer, cpus("2-3"), lifecycle.Value{Field: lifecycle.CPUQuota, Int: -1}, lifecycle.Value{Field: lifecycle.MemoryLimit, Int: -1},
		lifecycle.Value{Field: lifecycle.Env, Key: "C", Text: "3"}, lifecycle.Value{Field: lifecycle.Env, Key: "B", Remove: true},
		lifecycle.Value{Field: lifecycle.Annotation, Key: "record", Text: "r"})
	id, err := p.create(g, pod, config())
	if err != nil {
		t.Fatal(err)
	}
	told := g.h.found(t, lifecycle.CreateContainer, "")
	if told.Container.Name != "app" || told.Pod.ID != pod || told.Pod.UID != "u-1" || told.Container.Resources.CPU.Quota.V != 20000 || told.Container.OOMScoreAdj.V != 5 ||
		!slices.Equal(told.Container.Env, []string{"A=1", "B=2"}) {
		t.Errorf("reported %+v of pod %+v", told.Container, told.Pod)
	}
	want := config()
	want.Linux.Resources.CpusetCpus, want.Linux.Resources.CpuQuota = "2-3", -1
	want.Envs = []*api.KeyValue{{Key: "A", Value: []byte("1")}, {Key: "C", Value: []byte("3")}}
	want.Annotations = map[string]string{"record": "r"}
	got := g.runtime.request("CreateContainer").(*api.CreateContainerRequest).Config
	if d := cmp.Diff(want, got, protocmp.Transform()); d != "" {
		t.Errorf("the runtime was asked for another container: %s", d)
	}

	// Between creation and start its CPUs change: the runtime gets them before the start.
	g.h.on(lifecycle.StartContainer, func(ev lifecycle.Event) (conductor.Answer, error) {
		return conductor.Answer{Others: []conductor.Settings{{Container: ev.Container.ID, Values: []lifecycle.Value{cpus("4")}}}}, nil
	})
	g.runtime.told()
	if err := p.start(g, id); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"UpdateContainerResources", "StartContainer"}, g.runtime.told()); d != "" {
		t.Error(d)
	}
	named := g.h.found(t, lifecycle.PostCreateContainer, id)
	if named.Former != told.Container.ID || named.Container.CgroupsPath == "" {
		t.Errorf("%+v", named)
	}
	g.h.found(t, lifecycle.PostStartContainer, id)

	// An update has all resources; those that the runtime already has do not count as requested.
	g.h.says(lifecycle.UpdateContainer, cpus("2-3"))
	req := p.stored[id]
	req.ContainerResources.CpuQuota, req.ContainerResources.CpuShares = 5000, 300 // 5000 is the runtime's
	resp, err := p.calls.PreUpdateContainerResourcesHook(g.ctx(), req)
	if err != nil {
		t.Fatal(err)
	}
	if r := resp.ContainerResources; r.CpuShares != 300 || r.CpuQuota != 5000 || r.CpusetCpus != "2-3" || r.OomScoreAdj != 5 {
		t.Errorf("answered %v", r)
	}
	if asked := g.h.found(t, lifecycle.UpdateContainer, id).Requested; asked.CPU.Shares.V != 300 || asked.CPU.Quota.Set {
		t.Errorf("asked for %+v", asked)
	}
	// The update is reported when the runtime has it, not earlier.
	if _, told := g.h.look(lifecycle.PostUpdateContainer, id); told {
		t.Error("the update was reported before the runtime had it")
	}
	if _, err := p.runtime.UpdateContainerResources(g.ctx(), &api.UpdateContainerResourcesRequest{ContainerId: id, Linux: &api.LinuxContainerResources{
		CpuShares: 300, CpuQuota: 5000, CpusetCpus: "2-3", OomScoreAdj: 5,
	}}); err != nil {
		t.Fatal(err)
	}
	g.h.found(t, lifecycle.PostUpdateContainer, id)
	// A restarted proxy sends no resources.
	if resp, err := p.calls.PreUpdateContainerResourcesHook(g.ctx(), &hooks.ContainerResourceHookRequest{PodMeta: req.PodMeta, ContainerMeta: req.ContainerMeta}); err != nil || resp.ContainerResources != nil {
		t.Errorf("%v, %v", resp, err)
	}
	if _, err := p.calls.PostStopContainerHook(g.ctx(), req); err != nil {
		t.Fatal(err)
	}
	g.h.found(t, lifecycle.StopContainer, id)
	if _, err := p.calls.PostStopPodSandboxHook(g.ctx(), &hooks.PodSandboxHookRequest{PodMeta: req.PodMeta}); err != nil {
		t.Fatal(err)
	}
	g.h.found(t, lifecycle.StopPodSandbox, pod)
}

// TestFieldProxyOddities: every request that a proxy may send gets a complete answer, and none causes a
// panic.
func TestFieldProxyOddities(t *testing.T) {
	g, p := newHooked(t)
	_, err := p.calls.PreCreateContainerHook(g.ctx(), &hooks.ContainerResourceHookRequest{})
	if status.Code(err) != codes.NotFound {
		t.Errorf("no pod: %v", err)
	}
	for _, call := range []func(context.Context, *hooks.ContainerResourceHookRequest, ...grpc.CallOption) (*hooks.ContainerResourceHookResponse, error){
		p.calls.PreStartContainerHook, p.calls.PostStartContainerHook, p.calls.PreUpdateContainerResourcesHook, p.calls.PostStopContainerHook,
	} {
		if _, err := call(g.ctx(), &hooks.ContainerResourceHookRequest{}); err != nil {
			t.Error(err)
		}
		full := p.asked(config())
		full.ContainerMeta.Id = "nobody"
		resp, err := call(g.ctx(), full)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(full.ContainerResources, resp.ContainerResources, protocmp.Transform()); d != "" || resp.PodCgroupParent != full.PodCgroupParent || !maps.Equal(resp.ContainerEnvs, full.ContainerEnvs) {
			t.Errorf("answered with less: %s", d)
		}
	}
	if _, err := p.calls.PostStopPodSandboxHook(g.ctx(), &hooks.PodSandboxHookRequest{}); err != nil {
		t.Error(err)
	}
	if _, err := p.calls.PreRunPodSandboxHook(g.ctx(), &hooks.PodSandboxHookRequest{}); err != nil {
		t.Error(err)
	}
	pod, err := p.runPod(g)
	if err != nil {
		t.Fatal(err)
	}
	// If a request has no resources, the answer has none: the proxy would take a missing oom_score_adj for
	// 0.
	g.h.says(lifecycle.CreateContainer, cpus("2-3"), lifecycle.Value{Field: lifecycle.Env, Key: "C", Text: "3"})
	bare := p.asked(config())
	bare.ContainerResources = nil
	if resp, err := p.calls.PreCreateContainerHook(g.ctx(), bare); err != nil || resp.ContainerResources != nil || resp.ContainerEnvs["C"] != "3" {
		t.Errorf("%v, %v", resp, err)
	}
	g.h.on(lifecycle.CreateContainer, func(lifecycle.Event) (conductor.Answer, error) {
		return conductor.Answer{}, &conductor.Rejection{Reason: "not here"}
	})
	if _, err := p.create(g, pod, config()); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "not here") {
		t.Error(err)
	}
	g.h.on(lifecycle.CreateContainer, func(lifecycle.Event) (conductor.Answer, error) { panic("ouch") })
	if _, err := p.create(g, pod, config()); status.Code(err) != codes.Internal {
		t.Error(err)
	}
	g.h.on(lifecycle.CreateContainer, func(lifecycle.Event) (conductor.Answer, error) { return conductor.Answer{}, errors.New("ours") })
	if _, err := p.create(g, pod, config()); err != nil {
		t.Error(err)
	}
}

// TestRegisterTwice: a file with the same content is not written again; one with other content is replaced.
func TestRegisterTwice(t *testing.T) {
	file := filepath.Join(t.TempDir(), "trimtab.json")
	if err := cri.RegisterHookService(cri.HookService{RegistrationFile: file, Socket: "/run/a.sock"}, false); err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := cri.RegisterHookService(cri.HookService{RegistrationFile: file, Socket: "/run/a.sock"}, false); err != nil {
		t.Fatal(err)
	}
	if again, err := os.Stat(file); err != nil || !os.SameFile(before, again) {
		t.Error("written again", err)
	}
	if err := cri.RegisterHookService(cri.HookService{RegistrationFile: file, Socket: "/run/a.sock", OmittedStages: []string{"PreCreateContainer"}}, true); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(file); err != nil || !strings.Contains(string(text), `"Fail"`) || strings.Contains(string(text), "PreCreateContainer") {
		t.Errorf("%s, %v", text, err)
	}
}

// TestSandboxesEnd: the runtime ends pods whose end the proxy does not report, one of them with a failed
// creation: nothing of them is kept.
func TestSandboxesEnd(t *testing.T) {
	g, p := newHooked(t)
	for n := range 5 {
		pod, err := p.runPod(g)
		if err != nil {
			t.Fatal(err)
		}
		id, err := p.create(g, pod, config())
		if err == nil && n%2 == 0 {
			err = p.start(g, id)
		}
		if err != nil {
			t.Fatal(err)
		}
		g.runtime.set(func() {
			delete(g.runtime.ctrs, id)
			delete(g.runtime.pods, pod)
		})
		g.h.found(t, lifecycle.RemovePodSandbox, pod)
	}
	for range 2 { // comparisons in which none of them is listed
		g.runtime.set(func() { delete(g.runtime.last, "ListPodSandbox") })
		attachtest.Until(t, "lists are compared", func() bool { return g.runtime.request("ListPodSandbox") != nil })
	}
	g.stop()
	kept := census.Of([]string{"*cri_test."}, g.a)
	for _, name := range []string{"cri.store.pods", "cri.store.ctrs", "cri.hookService.sandboxIDs", "cri.hookService.creating", "cri.callQueues.queues", "cri.callQueues.starts", "flowcontrol.Backoff.perItemBackoff", "cri.unannouncedObjects.firstListed", "cri.unannouncedObjects.nextListed"} {
		if n, counted := kept[name]; n != 0 || !counted {
			t.Errorf("%s has %d entries, and no pod is left (it is counted: %t)", name, n, counted)
		}
	}
}
