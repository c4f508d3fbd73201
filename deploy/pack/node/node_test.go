package node_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/deploy/pack/chart"
	"github.com/trimtab/trimtab/deploy/pack/test/render"
	"github.com/trimtab/trimtab/deploy/pack/test/tree"
	"github.com/trimtab/trimtab/test/real"
)

const (
	repository = "trimtab.test/trimtab"
	patience   = 60 * time.Second
)

// TestNode runs the agent on a real containerd from the image of `make image`, with exactly the chart's user,
// capabilities, seccomp profile, read-only root, mounts and configuration. Its decisions must be in force in the
// kernel, and it must answer the probes.
func TestNode(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Skip("needs two CPUs")
	}
	c := real.Start(t)
	tag := imported(t, c)
	t.Run("nri", func(t *testing.T) { play(t, c.For(t), tag, "nri") })
	t.Run("bypass", func(t *testing.T) { play(t, c.For(t), tag, "bypass") })
	t.Run("without", func(t *testing.T) { each(t, c.For(t), tag) })
}

// thisTest is the value of "shown" in needs.yaml for the needs that TestNode checks.
const thisTest = "deploy/pack/node TestNode"

// each leaves out the needs one by one, and checks the error message.
func each(t *testing.T, c *real.Containerd, tag string) {
	t.Helper()
	c.RunContainer(c.RunPod(real.PodSpec{}), real.ContainerSpec{Args: []string{"spin"}})
	needs, err := chart.ReadNeeds(tree.Root(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range needs.All() {
		if n.Test != thisTest {
			continue
		}
		t.Run(n.Name, func(t *testing.T) {
			c := c.For(t)
			switch {
			case n.For == "unit":
				ask(t, c, tag, n)
			case n.Name == "hostNetwork":
				noNetwork(t, c, n)
			default:
				attach := map[string]string{"cri": "bypass"}[n.For]
				if attach == "" {
					attach = "nri"
				}
				a := start(t, c, tag, attach, n.Name)
				real.Eventually(t, patience, func() error {
					if said := a.complaint(); !strings.Contains(said, n.MessageWithout) {
						return fmt.Errorf("%q is not in its messages: %s", n.MessageWithout, said)
					}
					return nil
				})
			}
		})
	}
}

// noNetwork runs a pod with its own network namespace on a node whose pod network does not exist yet: the
// runtime refuses it. All other tests run their pods in the host's network.
func noNetwork(t *testing.T, c *real.Containerd, n chart.Need) {
	t.Helper()
	sandbox := c.CreateRequest(c.RunPod(real.PodSpec{}), real.ContainerSpec{}).SandboxConfig
	sandbox.Linux.SecurityContext.NamespaceOptions.Network = cri.NamespaceMode_POD
	sandbox.Metadata.Attempt++
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := c.CRI().RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: sandbox}); err == nil || !strings.Contains(err.Error(), n.MessageWithout) {
		t.Errorf("a pod with a network of its own: %v, want %q", err, n.MessageWithout)
	}
}

// ask calls an agent through the pod that the chart makes with attach: none: with all needs, and with one
// missing.
func ask(t *testing.T, c *real.Containerd, tag string, n chart.Need) {
	t.Helper()
	a := start(t, c, tag, "nri")
	a.ready()
	unit := filepath.Join(a.dir, "key/config.yaml") // the path that the chart expects for a unit
	text, err := os.ReadFile(a.config)
	if err == nil {
		err = os.WriteFile(unit, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, without := range []string{"", n.Name} {
		idle := *a
		idle.run(render.Chart(t, a.values(tag, "none", "agent")), without)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		answer, err := c.CRI().ExecSync(ctx, &cri.ExecSyncRequest{ContainerId: idle.id, Timeout: 30, Cmd: []string{"trimtab", "status"}})
		switch {
		case err != nil:
			t.Fatal(err)
		case without == "" && answer.ExitCode != 0:
			t.Errorf("trimtab status: %s", answer)
		case without != "" && (answer.ExitCode == 0 || !strings.Contains(string(answer.Stderr), n.MessageWithout)):
			t.Errorf("without %s: trimtab status does not say %q: %s", without, n.MessageWithout, answer)
		}
	}
}

// imported makes the image, imports it with ctr, and compares containerd's digest. It returns the image's tag.
func imported(t *testing.T, c *real.Containerd) string {
	t.Helper()
	dist := t.TempDir()
	said := tree.Run(t, tree.Root(t), "make", "image", "DIST="+dist, "IMAGE="+repository)
	made := regexp.MustCompile(`image (\S+):(\S+), digest (sha256:\w+)`).FindStringSubmatch(said)
	if made == nil {
		t.Fatalf("make image printed %q", said)
	}
	ctr := func(args ...string) string {
		args = append([]string{"--address", c.Socket(), "--namespace", "k8s.io", "images"}, args...)
		out, err := exec.CommandContext(t.Context(), filepath.Join(render.Tool(t, "ctr"), "ctr"), args...).CombinedOutput()
		if err != nil {
			t.Fatalf("ctr %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	ctr("import", filepath.Join(dist, "trimtab-image.tar"))
	row := slices.IndexFunc(strings.Split(ctr("ls"), "\n"), func(line string) bool {
		return strings.HasPrefix(line, made[1]+":"+made[2]+" ") && strings.Contains(line, made[3])
	})
	if row < 0 {
		t.Fatalf("no image %s:%s with digest %s:\n%s", made[1], made[2], made[3], ctr("ls"))
	}
	return made[2]
}

// agent is an agent that runs as a pod.
type agent struct {
	t       *testing.T
	c       *real.Containerd
	dir     string // has the directories that are mounted
	id      string
	log     string
	address string // the address of the agent's probes
	config  string // the mounted configuration file
	socket  string // the agent's status socket
}

func play(t *testing.T, c *real.Containerd, tag, attach string) {
	t.Helper()
	// The agent knows running containers, and removes a CPU from them that another container owns later.
	other := c.RunContainer(c.RunPod(real.PodSpec{}), real.ContainerSpec{Args: []string{"spin"}})
	a := start(t, c, tag, attach)
	a.confined()
	a.ready()
	if said := a.complaint(); !strings.Contains(said, "has read the files of OCI hooks") {
		t.Errorf("the directories of OCI hooks are not read: %s", said)
	}

	pod := c.RunPod(real.PodSpec{
		QoS:         real.Guaranteed,
		Labels:      map[string]string{"koordinator.sh/qosClass": "LSR"},
		Annotations: map[string]string{"scheduling.koordinator.sh/resource-status": `{"cpuset":"1"}`},
		Resources:   &cri.LinuxContainerResources{CpuShares: 1024, CpuPeriod: 100_000, CpuQuota: 100_000},
	})
	owner := c.RunContainer(pod, real.ContainerSpec{Resources: &cri.LinuxContainerResources{
		CpuShares: 1024, CpuPeriod: 100_000, CpuQuota: 100_000,
	}})
	inForce := func(file, want string, read func(string) string) {
		real.Eventually(t, patience, func() error {
			if got := read(file); got != want {
				return fmt.Errorf("%s is %q, want %q", file, got, want)
			}
			return nil
		})
	}
	inForce("cpuset.cpus", "1", func(f string) string { return c.KernelFile(owner, f) })
	rest := fmt.Sprintf("0,2-%d", runtime.NumCPU()-1)
	if n := runtime.NumCPU(); n <= 3 {
		rest = []string{"", "", "0", "0,2"}[n]
	}
	inForce("cpuset.cpus", rest, func(f string) string { return c.KernelFile(other, f) })
	// Only the agent writes the pod's own cgroup, without any capability.
	if c.CgroupVersion() == 1 {
		inForce("cpu.cfs_quota_us", "-1", func(f string) string { return c.PodKernelFile(pod, f) })
	}
	a.follows()
	c.StopPod(pod)
}

// start runs the agent's pod like a kubelet, as the chart renders it, without some of the volumes.
func start(t *testing.T, c *real.Containerd, tag, attach string, without ...string) *agent {
	t.Helper()
	dir, err := os.MkdirTemp("", "ttn") // t.TempDir is too long a path for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	a := &agent{t: t, c: c, dir: dir, address: free(t), config: filepath.Join(dir, "config/config.yaml"), socket: filepath.Join(dir, "run/s.sock")}
	authority := "agent" // with dra, only resource claims give containers CPUs
	if slices.Contains(without, "dra") {
		authority = "dra"
	}
	values := a.values(tag, attach, authority)
	if slices.Contains(without, "cpu") {
		values += "  placement: {policy: balloons, balloons: {cpuClasses: [{name: default, freqGovernor: powersave}]}}\n"
	}
	o := render.Chart(t, values)
	if err := os.Mkdir(filepath.Dir(a.config), 0o755); err != nil {
		t.Fatal(err)
	}
	a.write(o.Config)
	hooks := filepath.Join(dir, "hooks.d")
	const never = `{"version": "1.0.0", "hook": {"path": "/bin/true"}, "when": {"annotations": {"^example.com/never$": "."}}, "stages": ["poststop"]}`
	if err := errors.Join(os.Mkdir(hooks, 0o755), os.WriteFile(filepath.Join(hooks, "never.json"), []byte(never), 0o600)); err != nil {
		t.Fatal(err)
	}
	a.run(o, without...)
	return a
}

// values are those of the chart.
func (a *agent) values(tag, attach, authority string) string {
	return fmt.Sprintf(`
image: {repository: %[1]s, tag: %[2]q}
attach: %[3]s
config:
  authority: %[10]s
  nri: {socket: %[4]s}
  cri: {endpoint: "unix://%[5]s"}
  bypass: {cgroupRoot: %[6]s}
  paths: {statusSocket: %[9]s, key: %[7]s/key/record.key, state: %[7]s/state, cdi: [%[7]s/cdi], draCheckpoint: %[7]s/kubelet/dra_manager_state}
  podspec: {kubelet: {podsSocket: %[7]s/pods/p.sock, podResourcesSocket: %[7]s/devices/k.sock}}
  hooks: {ociHooks: {enabled: true, directories: [%[7]s/hooks.d]}, cdiDevices: {enabled: true, classes: [v.com/gpu]}}
  resourcePlugins: {directory: %[7]s/plugins, watch: [%[7]s/socks]}
  http: {address: %[8]q}
  cluster: {enabled: false}
`, repository, tag, attach, a.c.NRISocket(), a.c.Socket(), a.c.CgroupParent(), a.dir, a.address, a.socket, authority)
}

// run runs the pod that the chart renders, without some of the volumes.
func (a *agent) run(o render.Objects, without ...string) {
	t, c := a.t, a.c
	t.Helper()
	template := o.DaemonSet.Spec.Template.Spec
	main := &template.Containers[0]
	main.VolumeMounts = slices.DeleteFunc(main.VolumeMounts, func(m corev1.VolumeMount) bool {
		return slices.Contains(without, m.Name)
	})
	pod := c.RunPod(real.PodSpec{Namespace: "kube-system", QoS: real.Burstable})
	request := c.CreateRequest(pod, real.ContainerSpec{Name: "trimtab", Image: template.Containers[0].Image})
	container(t, request.Config, template, filepath.Dir(a.config))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	made, err := c.CRI().CreateContainer(ctx, request)
	if err != nil {
		t.Fatal(err)
	}
	a.id = made.ContainerId
	a.log = filepath.Join(request.SandboxConfig.LogDirectory, request.Config.LogPath)
	log := a.log
	t.Cleanup(func() {
		if log, err := os.ReadFile(log); err == nil && t.Failed() {
			t.Logf("log of the agent:\n%s", log)
		}
		c.StopPod(pod)
	})
	if _, err := c.CRI().StartContainer(ctx, &cri.StartContainerRequest{ContainerId: a.id}); err != nil {
		t.Fatal(err)
	}
}

// container makes a kubelet's request for the pod's container.
func container(t *testing.T, to *cri.ContainerConfig, pod corev1.PodSpec, config string) {
	t.Helper()
	from := pod.Containers[0]
	to.Args = from.Args
	for _, e := range from.Env {
		to.Envs = append(to.Envs, &cri.KeyValue{Key: e.Name, Value: []byte(e.Value)})
	}
	to.Linux.Resources = &cri.LinuxContainerResources{MemoryLimitInBytes: from.Resources.Limits.Memory().Value()}
	pids := cri.NamespaceMode_CONTAINER
	if pod.HostPID {
		pids = cri.NamespaceMode_NODE
	}
	security := from.SecurityContext
	to.Linux.SecurityContext = &cri.LinuxContainerSecurityContext{
		Privileged: *security.Privileged, ReadonlyRootfs: *security.ReadOnlyRootFilesystem,
		NoNewPrivs: !*security.AllowPrivilegeEscalation, RunAsUser: &cri.Int64Value{Value: *security.RunAsUser},
		Capabilities: &cri.Capability{
			AddCapabilities: texts(security.Capabilities.Add), DropCapabilities: texts(security.Capabilities.Drop),
		},
		Seccomp:          &cri.SecurityProfile{ProfileType: cri.SecurityProfile_RuntimeDefault},
		NamespaceOptions: &cri.NamespaceOption{Network: cri.NamespaceMode_NODE, Pid: pids},
	}
	paths := map[string]string{"config": config}
	for _, v := range pod.Volumes {
		if v.HostPath == nil {
			continue
		}
		paths[v.Name] = v.HostPath.Path
		if *v.HostPath.Type == corev1.HostPathDirectoryOrCreate {
			if err := os.MkdirAll(v.HostPath.Path, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, m := range from.VolumeMounts {
		to.Mounts = append(to.Mounts, &cri.Mount{ContainerPath: m.MountPath, HostPath: paths[m.Name], Readonly: m.ReadOnly})
	}
}

func texts(capabilities []corev1.Capability) []string {
	var all []string
	for _, c := range capabilities {
		all = append(all, string(c))
	}
	return all
}

// free returns an unused address of this machine.
func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func (a *agent) write(config string) {
	a.t.Helper()
	next := a.config + ".new"
	if err := os.WriteFile(next, []byte(config), 0o644); err != nil {
		a.t.Fatal(err)
	}
	if err := os.Rename(next, a.config); err != nil {
		a.t.Fatal(err)
	}
}

// confined checks that the process has exactly the confinement of the chart.
func (a *agent) confined() {
	a.t.Helper()
	pid := a.c.ContainerPID(real.ContainerID(a.id))
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		a.t.Fatal(err)
	}
	for _, line := range []string{"CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"} {
		if !strings.Contains(string(status), line+"\n") {
			a.t.Errorf("no %q in the status of the agent's process:\n%s", line, status)
		}
	}
}

// ready waits for the readiness probe: the agent is attached and has taken over running containers.
func (a *agent) ready() {
	a.t.Helper()
	real.Eventually(a.t, patience, func() error {
		for _, path := range []string{"/healthz", "/readyz"} {
			answer, err := http.Get("http://" + a.address + path)
			if err != nil {
				return err
			}
			answer.Body.Close()
			if answer.StatusCode != http.StatusOK {
				return fmt.Errorf("%s: %s", path, answer.Status)
			}
		}
		return nil
	})
}

// complaint returns the answer of the failing probe, and the agent's log.
func (a *agent) complaint() string {
	said := ""
	if answer, err := http.Get("http://" + a.address + "/readyz"); err == nil {
		body, _ := io.ReadAll(answer.Body)
		answer.Body.Close()
		said = answer.Status + " " + string(body)
	}
	log, err := os.ReadFile(a.log)
	if err != nil {
		return said
	}
	return said + string(log)
}

// follows checks that the agent applies a change of the mounted file, like a ConfigMap's.
func (a *agent) follows() {
	a.t.Helper()
	text, err := os.ReadFile(a.config)
	if err != nil {
		a.t.Fatal(err)
	}
	before := a.generation()
	a.write(string(text) + "keeper: {giveUpAfter: 29}\n")
	real.Eventually(a.t, patience, func() error {
		if now := a.generation(); now <= before {
			return fmt.Errorf("configuration %d, was %d", now, before)
		}
		return nil
	})
}

// generation runs `trimtab status` in the container, like kubectl exec.
func (a *agent) generation() int {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), patience)
	defer cancel()
	answer, err := a.c.CRI().ExecSync(ctx, &cri.ExecSyncRequest{
		ContainerId: a.id, Timeout: 30, Cmd: []string{"trimtab", "status", "--socket", a.socket, "-o", "json"},
	})
	if err != nil || answer.ExitCode != 0 {
		a.t.Fatalf("trimtab status: %v %s", err, answer)
	}
	var status struct {
		Generation int `json:"configGeneration"`
	}
	if err := json.Unmarshal(answer.Stdout, &status); err != nil {
		a.t.Fatal(err)
	}
	return status.Generation
}
