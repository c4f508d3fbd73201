package crowd

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/internal/attach/bypass"
	"github.com/trimtab/trimtab/internal/attach/nri"
	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/sim"
)

// armVar is a child's environment variable with the arm that it fetches by; dirVar has the directory of the runtime's
// sockets.
const (
	armVar = "TRIMTAB_CROWD_ARM"
	dirVar = "TRIMTAB_CROWD_DIR"
)

// warmRounds is how often a child repeats the fetch in the same process.
const warmRounds = 30

// arms fetch all containers of a node and return them.
var arms = map[string]func(ctx context.Context, dir string) ([]known, error){
	"empty plugin": fetchNothing, "nri": fetchNRI, "cri list": fetchList, "cri verbose": fetchVerbose,
}

func TestMain(m *testing.M) {
	sim.SetNRILog(slog.New(slog.DiscardHandler))
	if arm := os.Getenv(armVar); arm != "" {
		if err := child(arm, os.Getenv(dirVar)); err != nil {
			fmt.Fprintln(os.Stderr, arm+":", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// fetched is a child's result: the time of its first fetch, including the connection, and the times of further ones.
type fetched struct {
	Cold time.Duration
	Warm []time.Duration
	// Names is a digest of names and ids, All also of resources and cgroups. They are empty if the arm keeps nothing.
	Names, All string
}

func child(arm, dir string) error {
	if arm == agentArm {
		return attended(dir, os.Getenv(treeVar))
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	var f fetched
	for i := range warmRounds + 1 {
		begun := time.Now()
		model, err := arms[arm](ctx, dir)
		took := time.Since(begun)
		if err != nil {
			return err
		}
		if i > 0 {
			f.Warm = append(f.Warm, took)
			continue
		}
		f.Cold = took
		f.Names, f.All = digests(model)
	}
	return json.NewEncoder(os.Stdout).Encode(f)
}

// known is one container in the common model of all arms.
type known struct {
	Namespace, Pod, UID, Name, ID string
	Cgroup                        string
	Shares, Quota, Period, Memory int64
}

func digests(model []known) (names, all string) {
	if len(model) == 0 {
		return "", ""
	}
	slices.SortFunc(model, func(a, b known) int { return strings.Compare(a.ID, b.ID) })
	if model[0].Cgroup != "" {
		all = fmt.Sprintf("%x", sha256.Sum256(fmt.Append(nil, model)))
	}
	for i := range model {
		k := &model[i]
		*k = known{Namespace: k.Namespace, Pod: k.Pod, UID: k.UID, Name: k.Name, ID: k.ID}
	}
	return fmt.Sprintf("%x", sha256.Sum256(fmt.Append(nil, model))), all
}

// BenchmarkFetch measures how long an attachment takes to list all containers: cold in a new process, and warm. The
// base is a plugin with the NRI library that receives the same and keeps nothing.
func BenchmarkFetch(b *testing.B) {
	for _, pods := range []int{1, 10, 30, 100, 300, 1000} {
		b.Run(fmt.Sprint(pods), func(b *testing.B) {
			n := newNode(b, pods)
			cold, warm, last := map[string][]time.Duration{}, map[string][]time.Duration{}, map[string]fetched{}
			order := []string{"empty plugin", "nri", "cri list", "cri verbose"}
			for b.Loop() {
				for _, arm := range order {
					f := n.fetch(b, arm)
					cold[arm], warm[arm], last[arm] = append(cold[arm], f.Cold), append(warm[arm], f.Warm...), f
				}
				slices.Reverse(order)
			}
			// Times are comparable only if all arms have the same containers.
			if last["nri"].All == "" || last["nri"].All != last["cri verbose"].All {
				b.Errorf("NRI and CRI list different containers: %+v, %+v", last["nri"], last["cri verbose"])
			}
			if last["nri"].Names != last["cri list"].Names {
				b.Errorf("NRI and CRI lists name different containers")
			}
			for _, arm := range order {
				name := strings.ReplaceAll(arm, " ", "-")
				b.ReportMetric(median(cold[arm]), name+"-cold-ms")
				b.ReportMetric(median(warm[arm]), name+"-warm-ms")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

func median(all []time.Duration) float64 {
	slices.Sort(all)
	return float64(all[len(all)/2]) / float64(time.Millisecond)
}

func (n *node) fetch(b *testing.B, arm string) fetched {
	b.Helper()
	cmd := exec.CommandContext(b.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), armVar+"="+arm, dirVar+"="+n.dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		b.Fatalf("%s: %v", arm, err)
	}
	var f fetched
	if err := json.Unmarshal(out, &f); err != nil {
		b.Fatal(err)
	}
	return f
}

// nothing is a plugin that keeps nothing.
type nothing struct{ told chan struct{} }

func (p nothing) Synchronize(context.Context, []*api.PodSandbox, []*api.Container) ([]*api.ContainerUpdate, error) {
	close(p.told)
	return nil, nil
}

// CreateContainer exists because the library refuses a plugin without a handler.
func (nothing) CreateContainer(context.Context, *api.PodSandbox, *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	return nil, nil, nil
}

func fetchNothing(ctx context.Context, dir string) ([]known, error) {
	p := nothing{make(chan struct{})}
	s, err := stub.New(p, stub.WithPluginName("empty"), stub.WithPluginIdx("10"), stub.WithSocketPath(filepath.Join(dir, "n")), stub.WithOnClose(func() {}))
	if err != nil {
		return nil, err
	}
	if err := s.Start(ctx); err != nil {
		return nil, err
	}
	<-p.told
	go func() { s.Stop() }() // not part of the measurement
	return nil, nil
}

// keeper is a handler that keeps the first list that it gets, as the common model, and wants no other event.
type keeper struct {
	told  chan []known
	wants []lifecycle.Kind
}

func (k *keeper) Handle(_ context.Context, _ conductor.Carrier, ev lifecycle.Event) (conductor.Answer, error) {
	if ev.Kind == lifecycle.Synchronize {
		k.told <- model(ev.Pods, ev.Containers)
	}
	return conductor.Answer{}, nil
}

func (k *keeper) Wants() []lifecycle.Kind                     { return k.wants }
func (*keeper) Attached(conductor.Carrier, conductor.Runtime) {}
func (*keeper) Detached(conductor.Carrier, error)             {}
func newKeeper() *keeper {
	return &keeper{make(chan []known, 1), []lifecycle.Kind{lifecycle.Synchronize, lifecycle.CreateContainer, lifecycle.StopContainer}}
}

func model(pods []*lifecycle.Pod, ctrs []*lifecycle.Container) []known {
	byID := make(map[string]*lifecycle.Pod, len(pods))
	for _, p := range pods {
		byID[p.ID] = p
	}
	all := make([]known, 0, len(ctrs))
	for _, c := range ctrs {
		p := byID[c.PodID]
		if p == nil {
			continue
		}
		dir, err := cgroup.Path(p.CgroupParent, c.CgroupsPath)
		if err != nil {
			continue
		}
		r := c.Resources
		all = append(all, known{
			Namespace: p.Namespace, Pod: p.Name, UID: p.UID, Name: c.Name, ID: c.ID, Cgroup: dir,
			Shares: int64(r.CPU.Shares.V), Quota: r.CPU.Quota.V, Period: int64(r.CPU.Period.V), Memory: r.Memory.Limit.V,
		})
	}
	return all
}

// runs runs an attachment until it has reported all containers.
func runs(ctx context.Context, k *keeper, run func(context.Context) error) ([]known, error) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	defer cancel() // run ends outside of the measurement
	select {
	case m := <-k.told:
		return m, nil
	case err := <-ended:
		return nil, fmt.Errorf("ended: %w", err)
	}
}

func fetchNRI(ctx context.Context, dir string) ([]known, error) {
	k := newKeeper()
	a := nri.New(nri.Options{Socket: filepath.Join(dir, "n"), Name: "crowd", Index: "20", Handler: k, Log: slog.New(slog.DiscardHandler)})
	return runs(ctx, k, a.Run)
}

// fetchVerbose does the same as bypass: lists, and the verbose status of each pod and container.
func fetchVerbose(ctx context.Context, dir string) ([]known, error) {
	k := newKeeper()
	root := filepath.Join(dir, "cgroup") // existing cgroups do not matter here
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, err
	}
	files, err := cgroup.OpenRoot(root)
	if err != nil {
		return nil, err
	}
	defer files.Close()
	a, err := bypass.New(bypass.Options{
		Endpoint: "unix://" + filepath.Join(dir, "c"), Tree: &cgroup.Tree{FS: files, Version: cgroup.V2}, Handler: k,
		Watch: func() (cgroup.Watcher, error) { return cgroup.Watch(root) }, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	return runs(ctx, k, a.Run)
}

func fetchList(ctx context.Context, dir string) ([]known, error) {
	conn, err := grpc.NewClient("unix://"+filepath.Join(dir, "c"), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16<<20)))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	calls := v1.NewRuntimeServiceClient(conn)
	pods, err := calls.ListPodSandbox(ctx, &v1.ListPodSandboxRequest{})
	if err != nil {
		return nil, err
	}
	ctrs, err := calls.ListContainers(ctx, &v1.ListContainersRequest{})
	if err != nil {
		return nil, err
	}
	byID := make(map[string]*v1.PodSandboxMetadata, len(pods.Items))
	for _, p := range pods.Items {
		byID[p.Id] = p.Metadata
	}
	var all []known
	for _, c := range ctrs.Containers {
		m := byID[c.PodSandboxId]
		all = append(all, known{Namespace: m.GetNamespace(), Pod: m.GetName(), UID: m.GetUid(), Name: c.GetMetadata().GetName(), ID: c.Id})
	}
	return all, nil
}
