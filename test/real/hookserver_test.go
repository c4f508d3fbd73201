package real_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	hooks "github.com/trimtab/trimtab/api/runtime/v1alpha1"
	"github.com/trimtab/trimtab/test/real"
)

// hookServer is a hook server of the test, over gRPC.
type hookServer struct {
	hooks.UnimplementedRuntimeHookServiceServer

	t      *testing.T
	socket string
	server *grpc.Server

	mu     sync.Mutex
	create func(*hooks.ContainerResourceHookRequest) // changes the request, which becomes the answer
	calls  map[string]*hooks.ContainerResourceHookRequest
}

// startHookServer starts a hook server on its own socket.
func startHookServer(t *testing.T, dir, name string, create func(*hooks.ContainerResourceHookRequest)) *hookServer {
	t.Helper()
	s := &hookServer{t: t, socket: filepath.Join(dir, name), create: create, calls: map[string]*hooks.ContainerResourceHookRequest{}}
	l, err := net.Listen("unix", s.socket)
	if err != nil {
		t.Fatal(err)
	}
	s.server = grpc.NewServer()
	hooks.RegisterRuntimeHookServiceServer(s.server, s)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.server.Serve(l)
	}()
	t.Cleanup(func() {
		s.server.Stop()
		<-done
	})
	return s
}

func (s *hookServer) answer(call string, r *hooks.ContainerResourceHookRequest, change bool) (*hooks.ContainerResourceHookResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[call+" "+r.GetContainerMeta().GetName()] = r
	if change && s.create != nil {
		s.create(r)
	}
	return &hooks.ContainerResourceHookResponse{
		ContainerAnnotations: r.ContainerAnnotations, ContainerResources: r.ContainerResources, PodCgroupParent: r.PodCgroupParent, ContainerEnvs: r.ContainerEnvs,
	}, nil
}

// asked returns the last request of a call about a container.
func (s *hookServer) asked(call, container string) *hooks.ContainerResourceHookRequest {
	s.t.Helper()
	var r *hooks.ContainerResourceHookRequest
	real.Eventually(s.t, patiently, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if r = s.calls[call+" "+container]; r == nil {
			return fmt.Errorf("no call %s about %s", call, container)
		}
		return nil
	})
	return r
}

func (s *hookServer) PreCreateContainerHook(_ context.Context, r *hooks.ContainerResourceHookRequest) (*hooks.ContainerResourceHookResponse, error) {
	return s.answer("create", r, true)
}

func (s *hookServer) PreStartContainerHook(_ context.Context, r *hooks.ContainerResourceHookRequest) (*hooks.ContainerResourceHookResponse, error) {
	return s.answer("start", r, false)
}

func (s *hookServer) PostStartContainerHook(_ context.Context, r *hooks.ContainerResourceHookRequest) (*hooks.ContainerResourceHookResponse, error) {
	return s.answer("started", r, false)
}

func (s *hookServer) PreUpdateContainerResourcesHook(_ context.Context, r *hooks.ContainerResourceHookRequest) (*hooks.ContainerResourceHookResponse, error) {
	return s.answer("update", r, false)
}

func (s *hookServer) PostStopContainerHook(_ context.Context, r *hooks.ContainerResourceHookRequest) (*hooks.ContainerResourceHookResponse, error) {
	return s.answer("stopped", r, false)
}

// hookDir is the registration directory that an agent watches.
type hookDir struct {
	t    *testing.T
	path string
	a    *trimtab
}

// put replaces a file in one step.
func (d hookDir) put(name, text string) {
	d.t.Helper()
	tmp := filepath.Join(d.path, name+".tmp")
	if err := errors.Join(os.WriteFile(tmp, []byte(text), 0o644), os.Rename(tmp, filepath.Join(d.path, name))); err != nil {
		d.t.Fatal(err)
	}
}

func registration(socket, policy string) string {
	return fmt.Sprintf(`{"remote-endpoint":%q,"failure-policy":%q,"runtime-hooks":["PreCreateContainer","PreStartContainer","PostStartContainer","PreUpdateContainerResources","PostStopContainer"]}`, socket, policy)
}

type hookServerState struct {
	File, FailurePolicy, Error string
	InForce                    bool
}

// until waits until the agent reports a state of a file, which takes at most a second after a change.
func (d hookDir) until(file string, is func(s hookServerState) bool) {
	d.t.Helper()
	start := time.Now()
	real.Eventually(d.t, patiently, func() error {
		var n struct {
			HookServers struct{ Servers []hookServerState }
		}
		if err := d.a.get("/v1/status", &n); err != nil {
			return err
		}
		var found hookServerState
		for _, s := range n.HookServers.Servers {
			if s.File == file {
				found = s
			}
		}
		if !is(found) {
			return fmt.Errorf("%s is %+v", file, found)
		}
		return nil
	})
	if took := time.Since(start); took > time.Second {
		d.t.Logf("%s: took %v, on a busy machine", file, took)
	}
}

// TestHookServers runs hook servers through NRI and through the CRI proxy. They are called in order. The agent applies
// added, changed, invalid and removed files. Policy Fail fails a call and Ignore does not. A restart of the agent loses
// nothing.
func TestHookServers(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"nri", "cri"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			var options []real.Option
			if how == "cri" {
				options = append(options, real.WithoutNRI())
			}
			c := real.Start(t, options...)
			needV1(t, c)
			a := newTrimtab(t)
			d := hookDir{t, filepath.Join(a.dir, "hooks.d"), a}
			if err := os.Mkdir(d.path, 0o755); err != nil {
				t.Fatal(err)
			}
			config := fmt.Sprintf("hookServers: {directory: %s, timeoutMilliseconds: 1000}\n", d.path)
			if how == "cri" {
				config = a.between(c) + config
			}
			a.configure(c, config)
			a.run()
			a.attached()
			if how == "cri" {
				c.Through(a.proxy())
			}
			playHookServers(t, c, d, how)
		})
	}
}

func playHookServers(t *testing.T, c *real.Containerd, d hookDir, how string) {
	t.Helper()
	first := startHookServer(t, d.a.dir, "1.sock", func(r *hooks.ContainerResourceHookRequest) {
		r.ContainerEnvs["FIRST"] = "1"
		delete(r.ContainerEnvs, "AWAY")
		r.ContainerResources.CpuQuota, r.ContainerResources.CpuShares = 40000, 300
	})
	second := startHookServer(t, d.a.dir, "2.sock", func(r *hooks.ContainerResourceHookRequest) {
		r.ContainerEnvs["SECOND"] = "after " + r.ContainerEnvs["FIRST"]
		r.ContainerResources.CpuQuota /= 2
	})
	spec := plain("web", "")
	spec.Annotations = map[string]string{"example.com/a": "b"}
	pod := c.RunPod(spec)
	make := func(name string) real.ContainerSpec {
		return real.ContainerSpec{Name: name, Env: map[string]string{"MINE": "yes", "AWAY": "soon"}, Resources: &cri.LinuxContainerResources{CpuShares: 512, CpuPeriod: 100_000, CpuQuota: 80_000}}
	}
	shown := func(id real.ContainerID) string {
		env := c.FirstView(id).Env
		return fmt.Sprintf("%s %s first=%s second=%s mine=%s away=%s", c.KernelFile(id, "cpu.cfs_quota_us"), c.KernelFile(id, "cpu.shares"), env["FIRST"], env["SECOND"], env["MINE"], env["AWAY"])
	}
	away := ""
	if how == "nri" {
		away = "soon" // runtimes ignore removals over NRI, which the agent reports
	}
	same(t, "without a server", shown(c.RunContainer(pod, make("none"))), "80000 512 first= second= mine=yes away=soon")

	// Servers are called in the order of their file names, not of their registration.
	d.put("20-second.json", registration(second.socket, "Fail"))
	d.put("10-first.json", registration(first.socket, ""))
	up := func(s hookServerState) bool { return s.InForce && s.Error == "" }
	d.until("10-first.json", up)
	d.until("20-second.json", up)
	both := c.RunContainer(pod, make("both"))
	same(t, "with both", shown(both), "20000 300 first=1 second=after 1 mine=yes away="+away)

	// An invalid file leaves the server in force.
	if err := os.WriteFile(filepath.Join(d.path, "10-first.json"), []byte(`{"remote-endpoint": "/`), 0o644); err != nil {
		t.Fatal(err)
	}
	d.until("10-first.json", func(s hookServerState) bool { return s.InForce && strings.Contains(s.Error, "stays in force") })
	same(t, "with a broken file", shown(c.RunContainer(pod, make("broken"))), "20000 300 first=1 second=after 1 mine=yes away="+away)

	// A restart of the agent loses neither decisions nor the data for servers.
	d.put("10-first.json", registration(first.socket, ""))
	d.a.kill()
	d.a.run()
	d.a.attached()
	answers(t, c)
	same(t, "after a restart", shown(both), "20000 300 first=1 second=after 1 mine=yes away="+away)
	for _, v := range d.a.explain("shop", "web", "both")[0].Values {
		if v.Field == "env AWAY" && (v.Applied != (away == "") || !v.Applied && v.Note == "") {
			t.Errorf("after a restart: %+v", v)
		}
		if v.Field == "cpu.quota" && (v.Why.Hook != "hookserver" || v.Why.Source != "20-second.json" || v.Value != "20000" || !v.Applied) {
			t.Errorf("after a restart: %+v", v)
		}
	}
	c.UpdateResources(both, &cri.LinuxContainerResources{CpuShares: 600})
	whole := func(call string, r *hooks.ContainerResourceHookRequest, shares int64) {
		t.Helper()
		if r.PodMeta.Name != "web" || r.PodMeta.Namespace != "shop" || r.PodMeta.Uid == "" || r.PodAnnotations["example.com/a"] != "b" || len(r.PodLabels) == 0 || r.PodCgroupParent == "" ||
			r.ContainerMeta.Id != string(both) || r.ContainerEnvs["MINE"] != "yes" || r.ContainerEnvs["SECOND"] != "after 1" || r.ContainerResources.CpuQuota != 20000 || r.ContainerResources.CpuShares != shares {
			t.Errorf("%s got %v", call, r)
		}
	}
	whole("update", first.asked("update", "both"), 600)
	same(t, "after an update", shown(both), "20000 600 first=1 second=after 1 mine=yes away="+away)
	c.StopContainer(both)
	whole("stopped", second.asked("stopped", "both"), 600)
	first.asked("started", "both")

	// A server ends: policy Ignore skips it, Fail does not.
	first.server.Stop()
	same(t, "without the first", shown(c.RunContainer(pod, make("ignored"))), "40000 512 first= second=after  mine=yes away=soon")
	second.server.Stop()
	if _, err := c.TryCreateContainer(pod, make("failed")); err == nil || !strings.Contains(err.Error(), "hook server 20-second.json") {
		t.Errorf("Fail: %v", err)
	}
	skip := plain("skips", "")
	skip.Labels = map[string]string{"runtimeproxy.koordinator.sh/skip-hookserver": "true"}
	same(t, "a pod that skips them", shown(c.RunContainer(c.RunPod(skip), make("app"))), "80000 512 first= second= mine=yes away=soon")

	// The files are removed.
	for _, name := range []string{"10-first.json", "20-second.json"} {
		if err := os.Remove(filepath.Join(d.path, name)); err != nil {
			t.Fatal(err)
		}
		d.until(name, func(s hookServerState) bool { return s.File == "" })
	}
	same(t, "after the servers were removed", shown(c.RunContainer(pod, make("gone"))), "80000 512 first= second= mine=yes away=soon")
}

// runtimeProxy is a runtime proxy that calls hook servers like Koordinator's (1.8): the request of a creation has no
// id, it takes cpuset and oom_score_adj of any answer, also empty ones, and it replaces the environment.
type runtimeProxy struct {
	cri.UnimplementedRuntimeServiceServer

	runtime cri.RuntimeServiceClient
	hooks   hooks.RuntimeHookServiceClient

	mu     sync.Mutex
	pods   map[string]*cri.PodSandboxConfig
	stored map[string]*hooks.ContainerResourceHookRequest
}

func (p *runtimeProxy) RunPodSandbox(ctx context.Context, q *cri.RunPodSandboxRequest) (*cri.RunPodSandboxResponse, error) {
	m := q.Config.Metadata
	resp, err := p.hooks.PreRunPodSandboxHook(ctx, &hooks.PodSandboxHookRequest{
		PodMeta: &hooks.PodSandboxMetadata{Name: m.Name, Uid: m.Uid, Namespace: m.Namespace}, Labels: q.Config.Labels, Annotations: q.Config.Annotations,
		CgroupParent: q.Config.Linux.CgroupParent,
	})
	if err != nil {
		return nil, err
	}
	maps.Copy(q.Config.Labels, resp.Labels)
	if resp.CgroupParent != "" {
		q.Config.Linux.CgroupParent = resp.CgroupParent
	}
	r, err := p.runtime.RunPodSandbox(ctx, q)
	if err == nil {
		p.mu.Lock()
		p.pods[r.PodSandboxId] = q.Config
		p.mu.Unlock()
	}
	return r, err
}

func (p *runtimeProxy) CreateContainer(ctx context.Context, q *cri.CreateContainerRequest) (*cri.CreateContainerResponse, error) {
	p.mu.Lock()
	pod := p.pods[q.PodSandboxId]
	p.mu.Unlock()
	r := q.Config.Linux.Resources
	if r == nil {
		r = &cri.LinuxContainerResources{}
		q.Config.Linux.Resources = r
	}
	req := &hooks.ContainerResourceHookRequest{
		PodMeta:              &hooks.PodSandboxMetadata{Name: pod.Metadata.Name, Uid: pod.Metadata.Uid, Namespace: pod.Metadata.Namespace},
		ContainerMeta:        &hooks.ContainerMetadata{Name: q.Config.Metadata.Name, Attempt: q.Config.Metadata.Attempt},
		ContainerAnnotations: q.Config.Annotations, PodLabels: pod.Labels, PodAnnotations: pod.Annotations, PodCgroupParent: pod.Linux.CgroupParent,
		ContainerEnvs: map[string]string{},
		ContainerResources: &hooks.LinuxContainerResources{
			CpuPeriod: r.CpuPeriod, CpuQuota: r.CpuQuota, CpuShares: r.CpuShares, MemoryLimitInBytes: r.MemoryLimitInBytes, OomScoreAdj: r.OomScoreAdj,
			CpusetCpus: r.CpusetCpus, CpusetMems: r.CpusetMems,
		},
	}
	for _, e := range q.Config.Envs {
		req.ContainerEnvs[e.Key] = string(e.Value)
	}
	resp, err := p.hooks.PreCreateContainerHook(ctx, req)
	if err != nil {
		return nil, err
	}
	if a := resp.ContainerResources; a != nil {
		if a.CpuShares > 0 {
			r.CpuShares = a.CpuShares
		}
		if a.CpuQuota != 0 {
			r.CpuQuota = a.CpuQuota
		}
		if a.MemoryLimitInBytes > 0 {
			r.MemoryLimitInBytes = a.MemoryLimitInBytes
		}
		r.OomScoreAdj, r.CpusetCpus, r.CpusetMems = a.OomScoreAdj, a.CpusetCpus, a.CpusetMems
	}
	q.Config.Annotations = maps.Clone(resp.ContainerAnnotations)
	q.Config.Envs = nil
	for _, k := range slices.Sorted(maps.Keys(resp.ContainerEnvs)) {
		q.Config.Envs = append(q.Config.Envs, &cri.KeyValue{Key: k, Value: []byte(resp.ContainerEnvs[k])})
	}
	made, err := p.runtime.CreateContainer(ctx, q)
	if err == nil {
		req.ContainerMeta.Id = made.ContainerId
		p.mu.Lock()
		p.stored[made.ContainerId] = req
		p.mu.Unlock()
	}
	return made, err
}

func (p *runtimeProxy) about(id string) *hooks.ContainerResourceHookRequest {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stored[id]
}

func (p *runtimeProxy) StartContainer(ctx context.Context, q *cri.StartContainerRequest) (*cri.StartContainerResponse, error) {
	if _, err := p.hooks.PreStartContainerHook(ctx, p.about(q.ContainerId)); err != nil {
		return nil, err
	}
	r, err := p.runtime.StartContainer(ctx, q)
	if err == nil {
		_, _ = p.hooks.PostStartContainerHook(ctx, p.about(q.ContainerId))
	}
	return r, err
}

func (p *runtimeProxy) StopContainer(ctx context.Context, q *cri.StopContainerRequest) (*cri.StopContainerResponse, error) {
	r, err := p.runtime.StopContainer(ctx, q)
	if err == nil {
		_, _ = p.hooks.PostStopContainerHook(ctx, p.about(q.ContainerId))
	}
	return r, err
}

func (p *runtimeProxy) StopPodSandbox(ctx context.Context, q *cri.StopPodSandboxRequest) (*cri.StopPodSandboxResponse, error) {
	r, err := p.runtime.StopPodSandbox(ctx, q)
	p.mu.Lock()
	m := p.pods[q.PodSandboxId].GetMetadata()
	p.mu.Unlock()
	if err == nil {
		_, _ = p.hooks.PostStopPodSandboxHook(ctx, &hooks.PodSandboxHookRequest{PodMeta: &hooks.PodSandboxMetadata{Name: m.GetName(), Uid: m.GetUid(), Namespace: m.GetNamespace()}})
	}
	return r, err
}

func (p *runtimeProxy) ContainerStatus(ctx context.Context, q *cri.ContainerStatusRequest) (*cri.ContainerStatusResponse, error) {
	return p.runtime.ContainerStatus(ctx, q)
}

func (p *runtimeProxy) RemoveContainer(ctx context.Context, q *cri.RemoveContainerRequest) (*cri.RemoveContainerResponse, error) {
	return p.runtime.RemoveContainer(ctx, q)
}

func (p *runtimeProxy) RemovePodSandbox(ctx context.Context, q *cri.RemovePodSandboxRequest) (*cri.RemovePodSandboxResponse, error) {
	return p.runtime.RemovePodSandbox(ctx, q)
}

// TestServesRuntimeProxy lets a proxy like Koordinator's call the agent: owners get their CPUs and no other container
// has them, also over a restart of the agent.
func TestServesRuntimeProxy(t *testing.T) {
	t.Parallel()
	needTwoCPUs(t)
	c := real.Start(t, real.WithoutNRI())
	needV1(t, c)
	a := newTrimtab(t)
	socket, file := filepath.Join(a.dir, "h.sock"), filepath.Join(a.dir, "hookserver.d", "trimtab.json")
	a.configure(c, fmt.Sprintf("attach: hooks\ncri: {endpoint: \"unix://%s\"}\nhookServers: {directory: %s, socket: %s, register: %s}\n", c.Socket(), filepath.Dir(file), socket, file))
	a.run()
	a.attached()
	real.Eventually(t, patiently, func() error {
		text, err := os.ReadFile(file)
		if err == nil && !strings.Contains(string(text), socket) {
			err = fmt.Errorf("it registered %s", text)
		}
		return err
	})
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	p := &runtimeProxy{
		runtime: c.Direct().RuntimeServiceClient, hooks: hooks.NewRuntimeHookServiceClient(conn),
		pods: map[string]*cri.PodSandboxConfig{}, stored: map[string]*hooks.ContainerResourceHookRequest{},
	}
	l, err := net.Listen("unix", filepath.Join(a.dir, "rp.sock"))
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	cri.RegisterRuntimeServiceServer(server, p)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	c.Through(l.Addr().String())

	silent := c.RunContainer(c.RunPod(plain("silent", "")), real.ContainerSpec{Name: "app", Env: map[string]string{"MINE": "yes"}})
	if env := c.FirstView(silent).Env; env["MINE"] != "yes" {
		t.Errorf("the pod without requests has %v", env)
	}
	ownerPod := c.RunPod(owning("db", "1"))
	owner := c.RunContainer(ownerPod, real.ContainerSpec{Name: "db", Resources: oneCPU})
	view := c.FirstView(owner)
	same(t, "owner's first instruction", view.CPUsAllowed, "1")
	check := func(when string) {
		t.Helper()
		same(t, when+": owner", c.KernelFile(owner, "cpuset.cpus"), "1")
		same(t, when+": owner's quota", c.KernelFile(owner, "cpu.cfs_quota_us"), "-1")
		same(t, when+": silent", c.KernelFile(silent, "cpuset.cpus"), "0")
	}
	check("at first")
	a.kill()
	a.run()
	a.attached()
	check("after a restart")
	later := c.RunContainer(c.RunPod(plain("later", "LS")), real.ContainerSpec{Name: "app"})
	same(t, "a later pod", c.KernelFile(later, "cpuset.cpus"), "0")
	c.StopContainer(owner)
	c.StopPod(ownerPod)
	real.Eventually(t, patiently, func() error {
		n, err := a.status()
		if err == nil && len(n.CPUs.Grants) > 0 {
			err = fmt.Errorf("grants %v", n.CPUs.Grants)
		}
		return err
	})
	same(t, "after the owner's end", c.KernelFile(silent, "cpuset.cpus"), "0-1")
}
