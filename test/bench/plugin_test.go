package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"runtime/pprof"
	"strings"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"

	"github.com/trimtab/trimtab/internal/agent"
	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/topology/describe"
)

// The environment variables of a plugin process.
const (
	armVar    = "TRIMTAB_BENCH_ARM"
	socketVar = "TRIMTAB_BENCH_SOCKET"
	treeVar   = "TRIMTAB_BENCH_TREE"   // of cgroup files
	stateVar  = "TRIMTAB_BENCH_STATE"  // a directory to write to
	policyVar = "TRIMTAB_BENCH_POLICY" // placement.policy
	podsVar   = "TRIMTAB_BENCH_PODS"   // the URL of a kubelet
	qrmVar    = "TRIMTAB_BENCH_QRM"    // the directory of resource plugins
	aheadVar  = "TRIMTAB_BENCH_AHEAD"  // not empty: pods are decided ahead
	// profileVar has a directory for a CPU and a heap profile of each Trimtab process.
	profileVar = "TRIMTAB_BENCH_PROFILE"
)

// The arms. The arm constant has two processes, and the difference of the two is noise.
const (
	empty    = "empty stub"
	constant = "constant stub"
	again    = "constant stub again"
	trimtab  = "trimtab"
)

var arms = []string{empty, constant, again, trimtab}

// machine is the described node of Trimtab: 64 CPUs.
const machine = "2s x 16c x 2t"

// plugin runs a plugin process. It ends with its standard input.
func plugin(arm string) error {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		if arm == trimtab {
			writeHeap()
		}
		cancel()
	}()
	if arm == trimtab {
		return profiled(func() error { return runTrimtab(ctx) })
	}
	h := &handlers{}
	if arm != empty {
		h.adjust = constantAdjustment()
	}
	s, err := stub.New(h, stub.WithPluginName("bench"), stub.WithPluginIdx("90"), stub.WithSocketPath(os.Getenv(socketVar)))
	if err != nil {
		return err
	}
	if err := s.Start(ctx); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// runTrimtab runs the agent like a node, with a described machine and plain files as cgroups. It logs at the default
// level to /dev/null.
func runTrimtab(ctx context.Context) error {
	m, err := describe.Parse(machine)
	if err != nil {
		return err
	}
	root, err := cgroup.OpenRoot(os.Getenv(treeVar))
	if err != nil {
		return err
	}
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	c := config.Default()
	c.NRI.Socket, c.Paths.StatusSocket = os.Getenv(socketVar), ""
	c.Paths.State = os.Getenv(stateVar)
	c.Paths.Key = os.Getenv(stateVar) + "/key"
	c.Placement.Policy = os.Getenv(policyVar)
	if dir := os.Getenv(qrmVar); dir != "" {
		c.ResourcePlugins.Directory, c.ResourcePlugins.Timeout = dir, 5000
		c.PodSpec.Kubelet.URL, c.PodSpec.Kubelet.PodsSocket, c.PodSpec.Poll = os.Getenv(podsVar), "", 1
		c.Ahead.Enabled, c.Ahead.Timeout = os.Getenv(aheadVar) != "", 3600
	}
	a, err := agent.New(agent.Options{
		Config: c, Machine: m, Log: slog.New(slog.NewTextHandler(null, nil)),
		Tree: &cgroup.Tree{FS: plainFiles{root}, Version: cgroup.V2},
	})
	if err != nil {
		return err
	}
	return a.RunAlone(ctx)
}

// profiled runs f, and writes profiles of it if profileVar is set.
func profiled(f func() error) error {
	dir := os.Getenv(profileVar)
	if dir == "" {
		return f()
	}
	cpu, err := os.Create(fmt.Sprintf("%s/cpu-%d", dir, os.Getpid()))
	if err != nil {
		return err
	}
	if err := pprof.StartCPUProfile(cpu); err != nil {
		return err
	}
	err = f()
	pprof.StopCPUProfile()
	return errors.Join(err, cpu.Close())
}

// writeHeap writes a profile of the live heap, if profileVar is set.
func writeHeap() {
	dir := os.Getenv(profileVar)
	if dir == "" {
		return
	}
	heap, err := os.Create(fmt.Sprintf("%s/heap-%d", dir, os.Getpid()))
	if err == nil {
		runtime.GC()
		err = errors.Join(pprof.WriteHeapProfile(heap), heap.Close())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "heap profile:", err)
	}
}

// plainFiles are plain files in place of cgroup files. A plain file keeps the rest of its old text if a shorter one is
// written, so every text is padded with blanks to one length.
type plainFiles struct{ *cgroup.Real }

// textLength is the length of every file.
const textLength = 64

func padded(text string) []byte { return fmt.Appendf(nil, "%-*s\n", textLength-1, text) }

func (p plainFiles) WriteFile(path string, data []byte) error {
	return p.Real.WriteFile(path, padded(strings.TrimSpace(string(data))))
}

// handlers is a plugin that subscribes to the same events as Trimtab and decides nothing.
type handlers struct{ adjust *api.ContainerAdjustment }

func (h *handlers) Synchronize(context.Context, []*api.PodSandbox, []*api.Container) ([]*api.ContainerUpdate, error) {
	return nil, nil
}
func (h *handlers) RunPodSandbox(context.Context, *api.PodSandbox) error    { return nil }
func (h *handlers) StopPodSandbox(context.Context, *api.PodSandbox) error   { return nil }
func (h *handlers) RemovePodSandbox(context.Context, *api.PodSandbox) error { return nil }
func (h *handlers) CreateContainer(context.Context, *api.PodSandbox, *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	return h.adjust, nil, nil
}
func (h *handlers) StartContainer(context.Context, *api.PodSandbox, *api.Container) error { return nil }
func (h *handlers) UpdateContainer(context.Context, *api.PodSandbox, *api.Container, *api.LinuxResources) ([]*api.ContainerUpdate, error) {
	return nil, nil
}
func (h *handlers) StopContainer(context.Context, *api.PodSandbox, *api.Container) ([]*api.ContainerUpdate, error) {
	return nil, nil
}
func (h *handlers) RemoveContainer(context.Context, *api.PodSandbox, *api.Container) error {
	return nil
}

// constantAdjustment has the kind and size of Trimtab's adjustments.
func constantAdjustment() *api.ContainerAdjustment {
	a := &api.ContainerAdjustment{}
	a.SetLinuxCPUSetCPUs("0-15,24-47,56-63")
	a.SetLinuxCPUShares(1024)
	a.AddEnv("NVIDIA_VISIBLE_DEVICES", "0,1")
	a.AddAnnotation("trimtab.io/record", strings.Repeat("r", 145))
	return a
}

// nriLog is a log for the NRI libraries.
type nriLog struct{ *slog.Logger }

func (l nriLog) Debugf(context.Context, string, ...any) {}
func (l nriLog) Infof(ctx context.Context, f string, args ...any) {
	l.InfoContext(ctx, fmt.Sprintf(f, args...))
}
func (l nriLog) Warnf(ctx context.Context, f string, args ...any) {
	l.WarnContext(ctx, fmt.Sprintf(f, args...))
}
func (l nriLog) Errorf(ctx context.Context, f string, args ...any) {
	l.ErrorContext(ctx, fmt.Sprintf(f, args...))
}
