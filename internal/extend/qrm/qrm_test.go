package qrm_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	api "github.com/trimtab/trimtab/api/resourceplugin/v1alpha1"
	"github.com/trimtab/trimtab/internal/extend/qrm"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a plugin with prepared answers.
type fake struct {
	api.UnimplementedResourcePluginServer

	options  *api.ResourcePluginOptions
	hints    func() (*api.ResourceHintsResponse, error)
	allocate func(ctx context.Context, r *api.ResourceRequest) (*api.ResourceAllocation, error)

	mu      sync.Mutex
	asked   []*api.ResourceRequest
	removed []string
	have    map[string]*api.ContainerResources
	forgets bool // guards have, which RemovePod changes
}

func (f *fake) GetResourcePluginOptions(context.Context, *api.Empty) (*api.ResourcePluginOptions, error) {
	return f.options, nil
}

func (f *fake) GetTopologyHints(context.Context, *api.ResourceRequest) (*api.ResourceHintsResponse, error) {
	return f.hints()
}

func (f *fake) Allocate(ctx context.Context, r *api.ResourceRequest) (*api.ResourceAllocationResponse, error) {
	f.mu.Lock()
	f.asked = append(f.asked, r)
	f.mu.Unlock()
	a, err := f.allocate(ctx, r)
	return &api.ResourceAllocationResponse{AllocationResult: a}, err
}

func (f *fake) RemovePod(_ context.Context, r *api.RemovePodRequest) (*api.RemovePodResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.removed = append(f.removed, r.GetPodUid()); f.forgets {
		delete(f.have, r.GetPodUid())
	}
	return &api.RemovePodResponse{}, nil
}

func (f *fake) GetResourcesAllocation(context.Context, *api.GetResourcesAllocationRequest) (*api.GetResourcesAllocationResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &api.GetResourcesAllocationResponse{PodResources: maps.Clone(f.have)}, nil
}

func (f *fake) serve(t *testing.T, path string) (stop func()) {
	t.Helper()
	return f.serveAs(t, path, f)
}

// serveAs serves a plugin that has more methods than a fake.
func (f *fake) serveAs(t *testing.T, path string, plugin api.ResourcePluginServer) (stop func()) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	api.RegisterResourcePluginServer(s, plugin)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	stop = sync.OnceFunc(func() { s.Stop(); <-done })
	t.Cleanup(stop)
	return stop
}

// gives returns an answer with one variable.
func gives(resource, text string) func(context.Context, *api.ResourceRequest) (*api.ResourceAllocation, error) {
	return func(context.Context, *api.ResourceRequest) (*api.ResourceAllocation, error) {
		return allocation(resource, &api.ResourceAllocationInfo{AllocatedQuantity: 1, Envs: map[string]string{"GIVEN": text}}), nil
	}
}

func allocation(resource string, info *api.ResourceAllocationInfo) *api.ResourceAllocation {
	return &api.ResourceAllocation{ResourceAllocation: map[string]*api.ResourceAllocationInfo{resource: info}}
}

// rig is a running manager with its directory.
type rig struct {
	*qrm.Manager

	t    *testing.T
	dir  string
	stop func()
}

func start(t *testing.T, dir string, change func(*qrm.Options)) *rig {
	t.Helper()
	o := qrm.Options{Directory: dir, Timeout: 5 * time.Second, Log: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&o)
	}
	r := &rig{Manager: qrm.New(o), t: t, dir: dir}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(r.stop)
	return r
}

func (r *rig) register(req *api.RegisterRequest) error {
	r.t.Helper()
	conn, err := grpc.NewClient("unix://"+filepath.Join(r.dir, "kubelet.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, err = api.NewRegistrationClient(conn).Register(r.t.Context(), req, grpc.WaitForReady(true))
	return err
}

func (r *rig) mustRegister(resource, endpoint string) {
	r.t.Helper()
	if err := r.register(&api.RegisterRequest{Version: "v1alpha1", Endpoint: endpoint, ResourceName: resource}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) state(resource string) qrm.State {
	all, _, _ := r.States()
	for _, s := range all {
		if s.Resource == resource {
			return s
		}
	}
	return qrm.State{}
}

// until waits for a condition.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	late := time.NewTimer(time.Minute)
	defer late.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-late.C:
			t.Fatal("never: " + what)
		}
	}
}

var pod = &lifecycle.Pod{UID: "u1", Namespace: "default", Name: "web", Labels: map[string]string{"katalyst.kubewharf.io/pod_role": "role"}, Annotations: map[string]string{"a": "b"}}

func spec(requests lifecycle.Amounts) *lifecycle.PodSpec {
	return &lifecycle.PodSpec{UID: "u1", QoS: "Burstable", Containers: []lifecycle.ContainerSpec{
		{Name: "first", Kind: lifecycle.Init}, {Name: "app", Requests: requests}, {Name: "log", Requests: requests},
	}}
}

func app(name string) *lifecycle.Container { return &lifecycle.Container{Name: name} }

// TestRequest: plugins get the request that a kubelet sends.
func TestRequest(t *testing.T) {
	f := &fake{options: &api.ResourcePluginOptions{}, allocate: gives("cpu", "x")}
	r := start(t, t.TempDir(), func(o *qrm.Options) {
		o.ResourceNames = map[string]string{"resource.katalyst.kubewharf.io/reclaimed_millicpu": "cpu"}
	})
	f.serve(t, filepath.Join(r.dir, "cpu.sock"))
	r.mustRegister("cpu", "cpu.sock") // without options, so the manager asks for them
	for _, requests := range []lifecycle.Amounts{{"cpu": 1500}, {"resource.katalyst.kubewharf.io/reclaimed_millicpu": 2000}} {
		if _, err := r.Question(pod, app("log"), spec(requests)).Allocate(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	want := func(n float64) string {
		return (&api.ResourceRequest{
			PodUid: "u1", PodNamespace: "default", PodName: "web", ContainerName: "log", ContainerType: api.ContainerType_SIDECAR, ContainerIndex: 1,
			PodRole: "role", ResourceName: "cpu", ResourceRequests: map[string]float64{"cpu": n}, Labels: pod.Labels, Annotations: pod.Annotations, NativeQosClass: "Burstable",
		}).String()
	}
	for i, n := range []float64{1.5, 2} {
		if got := f.asked[i].String(); got != want(n) {
			t.Errorf("asked\n%s, want\n%s", got, want(n))
		}
	}
	both := lifecycle.Amounts{"cpu": 1000, "resource.katalyst.kubewharf.io/reclaimed_millicpu": 2000}
	q := r.Question(pod, app("app"), spec(both))
	if _, problems := q.Hints(t.Context()); len(problems) != 1 || !strings.Contains(problems[0].Reason, "requests both") {
		t.Errorf("both names: %v", problems)
	}
	if q := r.Question(pod, app("app"), spec(lifecycle.Amounts{"memory": 1})); q != nil {
		t.Error("a question about nothing")
	}
}

// TestRefusedRegistrations: an invalid registration is reported, and changes nothing.
func TestRefusedRegistrations(t *testing.T) {
	r := start(t, t.TempDir(), nil)
	if err := os.WriteFile(filepath.Join(r.dir, "file.sock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ version, endpoint, resource, want string }{
		{"v2", "a.sock", "cpu", "is not supported"},
		{"", "a.sock", "cpu", "is not supported"},
		{"v1alpha1", "../a.sock", "cpu", "not the name of a socket"},
		{"v1alpha1", "/etc/passwd", "cpu", "is not the name of a socket"},
		{"v1alpha1", "kubelet.sock", "cpu", "is not the name of a socket"},
		{"v1alpha1", "", "cpu", "is not the name of a socket"},
		{"v1alpha1", "none.sock", "cpu", "no such file"},
		{"v1alpha1", "file.sock", "cpu", "is not a socket"},
		{"v1alpha1", "a.sock", "a b", "not the name of a resource"},
		{"v1alpha1", "a.sock", "", "is not the name of a resource"},
		{"v1alpha1", "a.sock", strings.Repeat("a", 400), "is not the name of a resource"},
	} {
		err := r.register(&api.RegisterRequest{Version: c.version, Endpoint: c.endpoint, ResourceName: c.resource})
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	plugins, refused, _ := r.States()
	if len(plugins) != 0 || len(refused) != 8 {
		t.Errorf("%d plugins, %d refused registrations are listed", len(plugins), len(refused))
	}
}

// TestReplaced: the newest registration of a resource is used, and status shows that.
func TestReplaced(t *testing.T) {
	r := start(t, t.TempDir(), nil)
	for _, name := range []string{"old", "new"} {
		f := &fake{options: &api.ResourcePluginOptions{}, allocate: gives("cpu", name)}
		f.serve(t, filepath.Join(r.dir, name+".sock"))
		r.mustRegister("cpu", name+".sock")
	}
	answer, err := r.Question(pod, app("app"), spec(lifecycle.Amounts{"cpu": 1000})).Allocate(t.Context(), nil)
	if err != nil || len(answer.Values) != 1 || answer.Values[0].Text != "new" {
		t.Errorf("%+v, %v", answer, err)
	}
	if s := r.state("cpu"); s.Replaced != 1 || !s.Answering {
		t.Errorf("state %+v", s)
	}
}

// TestAnswers: invalid parts of an answer are reported and ignored; the rest is applied.
func TestAnswers(t *testing.T) {
	dir := t.TempDir()
	many := map[string]string{}
	for i := range 300 {
		many[fmt.Sprint("E", i)] = "x"
	}
	for _, c := range []struct {
		name string
		info *api.ResourceAllocationInfo
		want []string // the expected values
		why  string   // the expected problem; "" for none
	}{
		{"all", &api.ResourceAllocationInfo{
			OciPropertyName: "CpusetCpus", AllocationResult: "1-2", Envs: map[string]string{"A": "b"}, Annotations: map[string]string{"k": "v"},
			Mounts:  []*api.Mount{{ContainerPath: "/m/", HostPath: dir, ReadOnly: true}},
			Devices: []*api.DeviceSpec{{ContainerPath: "/dev/nil", HostPath: "/dev/null", Permissions: "mrw"}},
		}, []string{"cpuset.cpus 1-2", "env A b", "annotation k v", "mount /m " + dir + " -> /m", "device /dev/nil /dev/nil c 1:3"}, ""},
		{"memory", &api.ResourceAllocationInfo{OciPropertyName: "MemoryLimitInBytes", AllocationResult: "1024"}, []string{"memory.limit 1024"}, ""},
		{"mems", &api.ResourceAllocationInfo{OciPropertyName: "CpusetMems", AllocationResult: "0"}, []string{"cpuset.mems 0"}, ""},
		{"knob", &api.ResourceAllocationInfo{OciPropertyName: "memory.high", AllocationResult: "4096"}, []string{"unified memory.high 4096"}, ""},
		{"not yet", &api.ResourceAllocationInfo{OciPropertyName: "CpusetCpus"}, nil, ""},
		{"bad list", &api.ResourceAllocationInfo{OciPropertyName: "CpusetCpus", AllocationResult: "1-x"}, nil, "x"},
		{"partition", &api.ResourceAllocationInfo{OciPropertyName: "cpuset.cpus.partition", AllocationResult: "root"}, nil, "could take"},
		{"no property", &api.ResourceAllocationInfo{OciPropertyName: "Pids", AllocationResult: "1"}, nil, "is not a property"},
		{"negative", &api.ResourceAllocationInfo{AllocatedQuantity: -1, Envs: map[string]string{"A": "b"}}, nil, "not an amount"},
		{"infinite", &api.ResourceAllocationInfo{AllocatedQuantity: math.Inf(1), Envs: map[string]string{"A": "b"}}, nil, "not an amount"},
		{"no number", &api.ResourceAllocationInfo{AllocatedQuantity: math.NaN(), Envs: map[string]string{"A": "b"}}, nil, "not an amount"},
		{"variable", &api.ResourceAllocationInfo{Envs: map[string]string{"A=B": "b"}}, nil, "not the name or value"},
		{"record", &api.ResourceAllocationInfo{Annotations: map[string]string{"trimtab.io/record": "b"}}, nil, "reserved"},
		{"relative", &api.ResourceAllocationInfo{Mounts: []*api.Mount{{ContainerPath: "m", HostPath: dir}}}, nil, "not an absolute path"},
		{"upwards", &api.ResourceAllocationInfo{Mounts: []*api.Mount{{ContainerPath: "/m/../..", HostPath: dir}}}, nil, "contains .."},
		{"root", &api.ResourceAllocationInfo{Mounts: []*api.Mount{{ContainerPath: "/", HostPath: dir}}}, nil, "would hide"},
		{"missing", &api.ResourceAllocationInfo{Mounts: []*api.Mount{{ContainerPath: "/m", HostPath: dir + "/none"}}}, nil, "cannot be mounted"},
		{"twice", &api.ResourceAllocationInfo{Mounts: []*api.Mount{{ContainerPath: "/m", HostPath: dir}, {ContainerPath: "/m/", HostPath: dir}}}, []string{"mount /m " + dir + " -> /m"}, "two values for this setting"},
		{"no device", &api.ResourceAllocationInfo{Devices: []*api.DeviceSpec{{HostPath: dir}}}, nil, "is not a device node"},
		{"read-only device", &api.ResourceAllocationInfo{Devices: []*api.DeviceSpec{{HostPath: "/dev/null", Permissions: "r"}}}, nil, "only rw and rwm"},
		{"many", &api.ResourceAllocationInfo{Envs: many}, nil, "more than 256"},
		{"long", &api.ResourceAllocationInfo{Envs: map[string]string{"A": strings.Repeat("x", 40<<10)}}, nil, "more than 32768 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			values, problems := qrm.ValuesOf("/dev", "nic", allocation("nic", c.info))
			var got []string
			for _, v := range values {
				got = append(got, v.Setting()+" "+v.String())
				if v.Why.Hook != lifecycle.ResourcePluginName || v.Why.Source != "nic" {
					t.Errorf("%s is of %+v", v.Setting(), v.Why)
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
			if c.why == "" && len(problems) > 0 || c.why != "" && (len(problems) != 1 || !strings.Contains(problems[0].Reason, c.why)) {
				t.Errorf("problems %v, want %q", problems, c.why)
			}
		})
	}
}

// TestDeviceDirectory: an agent that has the node's device nodes elsewhere finds them there, and containers get them
// by the node's paths.
func TestDeviceDirectory(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make device nodes")
	}
	dir := t.TempDir()
	if err := unix.Mknod(filepath.Join(dir, "card0"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))); err != nil { //nolint:gosec // a small number
		t.Skip(err)
	}
	values, problems := qrm.ValuesOf(dir, "nic", allocation("nic", &api.ResourceAllocationInfo{Devices: []*api.DeviceSpec{{HostPath: "/dev/card0"}}}))
	if len(values) != 1 || len(problems) > 0 || values[0].String() != "/dev/card0 c 1:3" {
		t.Errorf("%v, %v", values, problems)
	}
}

// TestHints: a key without a list means no preference, in each form that plugins send.
func TestHints(t *testing.T) {
	for _, c := range []struct {
		name string
		resp *api.ResourceHintsResponse
		err  error
		want []lifecycle.ResourceHints
	}{
		{"no key", &api.ResourceHintsResponse{}, nil, nil},
		{"empty list", &api.ResourceHintsResponse{ResourceHints: map[string]*api.ListOfTopologyHints{"nic": {}}}, nil, []lifecycle.ResourceHints{{Resource: "nic", Hints: []lifecycle.NUMAHint{}}}},
		{"a list", &api.ResourceHintsResponse{ResourceHints: map[string]*api.ListOfTopologyHints{"nic": {Hints: []*api.TopologyHint{{Nodes: []uint64{1, 0, 1}, Preferred: true}, {Nodes: []uint64{math.MaxUint64}}}}}}, nil,
			[]lifecycle.ResourceHints{{Resource: "nic", Hints: []lifecycle.NUMAHint{{Nodes: []int{0, 1}, Preferred: true}}}}},
		{"an error", nil, status.Error(codes.NotFound, "none"), []lifecycle.ResourceHints{{Resource: "nic", Hints: []lifecycle.NUMAHint{}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &fake{options: &api.ResourcePluginOptions{WithTopologyAlignment: true}, hints: func() (*api.ResourceHintsResponse, error) { return c.resp, c.err }}
			r := start(t, t.TempDir(), nil)
			f.serve(t, filepath.Join(r.dir, "nic.sock"))
			r.mustRegister("nic", "nic.sock")
			got, _ := r.Question(pod, app("app"), spec(lifecycle.Amounts{"nic": 1})).Hints(t.Context())
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestHung: a plugin that does not answer delays a creation by its time limit. The other plugins answer,
// and the plugin's last answer is used. Allocations of ended pods are released when it answers again.
func TestHung(t *testing.T) {
	const limit = 2 * time.Second // also for the plugin that answers, on a busy machine
	hang := make(chan struct{})
	var hung sync.Map
	slow := &fake{options: &api.ResourcePluginOptions{}}
	slow.allocate = func(ctx context.Context, r *api.ResourceRequest) (*api.ResourceAllocation, error) {
		if _, now := hung.Load("now"); now {
			select {
			case <-hang:
			case <-ctx.Done(): // the server's clock may be ahead of the caller's
				return nil, ctx.Err()
			}
		}
		return gives("slow", "slow")(ctx, r)
	}
	quick := &fake{options: &api.ResourcePluginOptions{}, allocate: gives("quick", "quick")}
	r := start(t, t.TempDir(), func(o *qrm.Options) { o.Timeout, o.FailClosed = limit, true })
	stop := slow.serve(t, filepath.Join(r.dir, "slow.sock"))
	quick.serve(t, filepath.Join(r.dir, "quick.sock"))
	r.mustRegister("slow", "slow.sock")
	r.mustRegister("quick", "quick.sock")
	ask := func(ctr string) (lifecycle.HookServerAnswer, error) {
		return r.Question(pod, app(ctr), spec(lifecycle.Amounts{"slow": 1, "quick": 1})).Allocate(t.Context(), nil)
	}
	if a, err := ask("app"); err != nil || len(a.Values) != 2 {
		t.Fatal(a, err)
	}
	hung.Store("now", true)
	begin := time.Now()
	a, err := ask("app") // created again
	if err != nil || len(a.Values) != 2 || len(a.Problems) != 1 || !strings.Contains(a.Problems[0].Then, "last answer") {
		t.Errorf("%+v, %v", a, err)
	}
	if _, err = ask("log"); err == nil || !strings.Contains(err.Error(), "resource plugin slow: no answer within") {
		t.Errorf("a container without an answer: %v", err)
	}
	if took := time.Since(begin); took > 20*limit {
		t.Errorf("two questions took %v", took)
	}
	close(hang)
	stop()
	r.Remove("u1")
	until(t, "the quick plugin releases", func() bool { return r.state("quick").Removals == 0 })
	if s := r.state("slow"); s.Removals != 1 {
		t.Errorf("state %+v", s)
	}
	slow.serve(t, filepath.Join(r.dir, "slow.sock"))
	r.mustRegister("slow", "slow.sock")
	until(t, "the slow plugin releases", func() bool { return r.state("slow").Removals == 0 })
	slow.mu.Lock()
	defer slow.mu.Unlock()
	if !slices.Contains(slow.removed, "u1") {
		t.Errorf("released %v", slow.removed)
	}
}

// TestHugeAnswer: an answer above the limit is an error, and is not stored.
func TestHugeAnswer(t *testing.T) {
	f := &fake{options: &api.ResourcePluginOptions{}, allocate: gives("nic", strings.Repeat("x", 100<<20))}
	r := start(t, t.TempDir(), func(o *qrm.Options) { o.Timeout = time.Minute })
	f.serve(t, filepath.Join(r.dir, "nic.sock"))
	r.mustRegister("nic", "nic.sock")
	a, err := r.Question(pod, app("app"), spec(lifecycle.Amounts{"nic": 1})).Allocate(t.Context(), nil)
	if err != nil || len(a.Values) != 0 || len(a.Problems) != 1 || !strings.Contains(a.Problems[0].Reason, "larger than max") {
		t.Errorf("%d values, %v, %v", len(a.Values), a.Problems, err)
	}
}
