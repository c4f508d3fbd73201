package hooks_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/internal/sim/scenario"
	"github.com/trimtab/trimtab/test/vm"
	"github.com/trimtab/trimtab/test/vm/agent"
	"github.com/trimtab/trimtab/test/vm/cluster/objects"
)

const chart = "../../../deploy/charts/trimtab"

// thisTest is what needs.yaml has under "shown" for needs that TestNeeds shows.
const thisTest = "test/vm/hooks TestNeeds"

// need is a row of needs.yaml of the chart: without is in what the agent says of a value that lacks it.
type need struct{ Name, Without, Shown string }

// needing says for a row of needs.yaml what shows it: a guest, the chart's values, and a pod with a field that is in
// force only with it, as explain names it.
var needing = map[string]struct {
	guest   vm.Guest
	values  []string
	prepare string // a script for the guest
	pod     *scenario.Run
	field   string
}{
	"SYS_PTRACE": {guest: vm.Guest{Kernel: coreKernel, Topology: vm.TwoCores}, values: coreSched, pod: labelled("db", "LSE", "2-3"), field: "core.sched"},
	"hostPID":    {guest: vm.Guest{Kernel: coreKernel, Topology: vm.TwoCores}, values: coreSched, pod: labelled("db", "LSE", "2-3"), field: "core.sched"},
	// Both with an attachment that hands nothing to the runtime. Each value is one that a process of the same user may
	// not set either.
	"SYS_RESOURCE": {
		guest: vm.Guest{Kernel: "6.12"}, values: allowing("ulimits", "attach=bypass", "config.hooks.ulimits.enabled=true", "config.hooks.ulimits.maximum[0]=memlock=1073741824"),
		pod: noted("ulimits.noderesource.dev/pod", "- {type: memlock, hard: 1073741824, soft: 65536}"), field: "rlimit",
	},
	"SYS_NICE": {
		guest: vm.Guest{Kernel: "6.12"}, values: allowing("scheduler", "attach=bypass", "config.hooks.scheduler.enabled=true"),
		pod: noted("scheduling-policy.noderesource.dev/pod", "{policy: SCHED_OTHER, nice: -5}"), field: "scheduler",
	},
	"SYS_ADMIN": {
		guest: vm.Guest{Kernel: "6.12"}, values: []string{"config.hooks.partition.enabled=true"},
		pod: labelled("db", "LSE", "2-3"), field: "cpuset.cpus.partition",
	},
	// An emulated machine has no cache allocation: plain files are in the place of the kernel's.
	"resctrl": {
		guest: vm.Guest{Kernel: "6.12"}, values: allowing("rdt", "config.hooks.rdt.enabled=true", "config.paths.resctrl=/run/resctrl"),
		prepare: resctrlFiles, pod: noted("node.koordinator.sh/resctrl", `{"llc":{"schemata":{"range":[0,30]}}}`), field: "rdt",
	},
	"dev": {
		guest: vm.Guest{Kernel: "6.12"}, values: allowing("devices", "config.hooks.gpu.devices=nodes"), prepare: "mknod /dev/nvidia0 c 195 0",
		pod: noted("scheduling.koordinator.sh/device-allocated", `{"gpu":[{"minor":0}]}`), field: "/dev/nvidia0",
	},
}

// coreKernel is a kernel with core scheduling.
const coreKernel = "6.12-core"

var coreSched = []string{"config.hooks.coreSched.enabled=true"}

// resctrlFiles makes the files of resctrl, and those of the groups of the two pods that come: the two halves of the test
// run in any order, so the pod that gets its group is the first or the second.
const resctrlFiles = `mkdir -p /run/resctrl/info/L3; cd /run/resctrl
echo 3ff >info/L3/cbm_mask; echo 1 >info/L3/min_cbm_bits; echo 4 >info/L3/num_closids
for d in . trimtab-00000001-0000-4000-8000-000000000001 trimtab-00000002-0000-4000-8000-000000000002; do
mkdir -p $d; echo 'L3:0=3ff' >$d/schemata; : >$d/tasks; echo shareable >$d/mode; done`

// allowing adds to values that pods of the namespace shop may ask for a kind.
func allowing(kind string, values ...string) []string {
	const rule = "config.authorization[0]."
	return append(values, rule+"kinds[0]="+kind, rule+"namespaces[0]=shop", rule+"decision=allow")
}

// noted returns a pod with an annotation.
func noted(key, value string) *scenario.Run {
	r := labelled("db", "LS", "")
	r.Pod.Annotations = map[string]string{key: value}
	return r
}

// TestNeeds runs the agent as a container, with what the chart renders for it: with what needs.yaml names, what needs it
// is in force. Without, it is not, and explain has the words of needs.yaml.
func TestNeeds(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(chart, "needs.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var needs struct{ Capabilities, Namespaces, Paths []need }
	if err := yaml.Unmarshal(text, &needs); err != nil {
		t.Fatal(err)
	}
	for _, c := range slices.Concat(needs.Capabilities, needs.Namespaces, needs.Paths) {
		if c.Shown != thisTest {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			at, known := needing[c.Name]
			if !known || c.Without == "" {
				t.Fatal("nothing shows what breaks without it")
			}
			if at.guest.Kernel == coreKernel {
				vm.SkipUnbuilt(t, "kernel.sh", coreKernel)
			} else {
				testTurns.Play(t)
			}
			p := rendered(t, append(at.values, "config.cluster.enabled=false")...)
			n := boot(t, at.guest)
			n.m.Sh(at.prepare)
			for name, p := range map[string]plan{"with": p, "without": p.without(t, c.Name)} {
				t.Run(name, func(t *testing.T) {
					n := n.of(t)
					n.contained(p)
					n.refused(c, name == "without")
				})
			}
		})
	}
}

// plan is what the chart makes of values.
type plan struct {
	pod    corev1.PodSpec
	config string
}

// without is the plan less a capability, a namespace of the host or a mount.
func (p plan) without(t *testing.T, name string) plan {
	t.Helper()
	p.pod = *p.pod.DeepCopy()
	c := &p.pod.Containers[0]
	before := len(c.SecurityContext.Capabilities.Add) + len(c.VolumeMounts)
	c.SecurityContext.Capabilities.Add = slices.DeleteFunc(c.SecurityContext.Capabilities.Add, func(c corev1.Capability) bool { return string(c) == name })
	c.VolumeMounts = slices.DeleteFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == name })
	dropped := len(c.SecurityContext.Capabilities.Add)+len(c.VolumeMounts) < before
	if name == "hostPID" {
		dropped, p.pod.HostPID = p.pod.HostPID, false
	}
	if !dropped {
		t.Fatalf("the chart does not render %s", name)
	}
	return p
}

// rendered has helm render the chart.
func rendered(t *testing.T, values ...string) (p plan) {
	t.Helper()
	for _, o := range objects.Parse(t, objects.Chart(t, values...)) {
		switch o.GetKind() {
		case "DaemonSet":
			var set appsv1.DaemonSet
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &set); err != nil {
				t.Fatal(err)
			}
			p.pod = set.Spec.Template.Spec
		case "ConfigMap":
			data, _ := o.Object["data"].(map[string]any)
			p.config, _ = data["config.yaml"].(string)
		}
	}
	if len(p.pod.Containers) != 1 || p.config == "" {
		t.Fatal("the chart makes no DaemonSet with one container, or no ConfigMap")
	}
	return p
}

// contained runs the agent as a kubelet would, in a container of the runtime. The container's image has no agent: the
// checkout's program is mounted.
func (n *machine) contained(p plan) {
	n.t.Helper()
	const uid = "00000000-0000-4000-8000-0000000000aa"
	from := p.pod.Containers[0]
	n.m.Sh("mkdir -p /config /sys/fs/cgroup/kubepods/pod" + uid)
	n.m.Put("/config/config.yaml", 0o644, []byte(p.config))
	pids := cri.NamespaceMode_CONTAINER
	if p.pod.HostPID {
		pids = cri.NamespaceMode_NODE
	}
	namespaces := &cri.NamespaceOption{Network: cri.NamespaceMode_NODE, Pid: pids}
	labels := map[string]string{
		"io.kubernetes.pod.name": "trimtab", "io.kubernetes.pod.namespace": "kube-system", "io.kubernetes.pod.uid": uid,
		"io.kubernetes.container.name": "trimtab",
	}
	sandbox := &cri.PodSandboxConfig{
		Metadata: &cri.PodSandboxMetadata{Name: "trimtab", Namespace: "kube-system", Uid: uid, Attempt: uint32(*n.made)},
		Labels:   labels, LogDirectory: "/var/log/pods/" + uid,
		Linux: &cri.LinuxPodSandboxConfig{
			CgroupParent: "/kubepods/pod" + uid, SecurityContext: &cri.LinuxSandboxSecurityContext{NamespaceOptions: namespaces},
		},
	}
	container := &cri.ContainerConfig{
		Metadata: &cri.ContainerMetadata{Name: "trimtab"}, Image: &cri.ImageSpec{Image: vm.Image("probe")}, Labels: labels, LogPath: "trimtab.log",
		Command: []string{"/trimtab"}, Args: from.Args, Mounts: mounts(n, p.pod),
		Linux: &cri.LinuxContainerConfig{Resources: &cri.LinuxContainerResources{}, SecurityContext: confined(from.SecurityContext, namespaces)},
	}
	ctx, cancel := call()
	defer cancel()
	pod, err := n.cri.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: sandbox})
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() {
		if n.t.Failed() {
			n.t.Log(n.m.Sh("tail -n 60 /var/log/pods/" + uid + "/trimtab.log; true"))
		}
		ctx, cancel := context.WithTimeout(context.Background(), agent.AwaitTimeout)
		defer cancel()
		_, stop := n.cri.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: pod.PodSandboxId})
		_, remove := n.cri.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: pod.PodSandboxId})
		if err := errors.Join(stop, remove); err != nil {
			n.t.Error(err)
		}
	})
	made, err := n.cri.CreateContainer(ctx, &cri.CreateContainerRequest{PodSandboxId: pod.PodSandboxId, Config: container, SandboxConfig: sandbox})
	if err == nil {
		_, err = n.cri.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: made.ContainerId})
	}
	if err := errors.Join(err, n.a.AwaitAttached()); err != nil {
		n.t.Fatal(err)
	}
}

// confined is the security context of a container.
func confined(s *corev1.SecurityContext, namespaces *cri.NamespaceOption) *cri.LinuxContainerSecurityContext {
	out := &cri.LinuxContainerSecurityContext{
		Privileged: *s.Privileged, ReadonlyRootfs: *s.ReadOnlyRootFilesystem, NoNewPrivs: !*s.AllowPrivilegeEscalation,
		RunAsUser: &cri.Int64Value{Value: *s.RunAsUser}, NamespaceOptions: namespaces, Capabilities: &cri.Capability{},
		Seccomp: &cri.SecurityProfile{ProfileType: cri.SecurityProfile_RuntimeDefault},
	}
	for _, c := range s.Capabilities.Drop {
		out.Capabilities.DropCapabilities = append(out.Capabilities.DropCapabilities, string(c))
	}
	for _, c := range s.Capabilities.Add {
		out.Capabilities.AddCapabilities = append(out.Capabilities.AddCapabilities, string(c))
	}
	return out
}

// mounts are those of the chart, and of the program.
func mounts(n *machine, pod corev1.PodSpec) []*cri.Mount {
	n.t.Helper()
	paths := map[string]string{"config": "/config"}
	for _, v := range pod.Volumes {
		if v.HostPath != nil {
			paths[v.Name] = v.HostPath.Path
			n.m.Run("mkdir", "-p", v.HostPath.Path)
		}
	}
	out := []*cri.Mount{{ContainerPath: "/trimtab", HostPath: agent.Program, Readonly: true}}
	for _, m := range pod.Containers[0].VolumeMounts {
		out = append(out, &cri.Mount{ContainerPath: m.MountPath, HostPath: paths[m.Name], Readonly: m.ReadOnly})
	}
	return out
}

// refused runs a pod with a value that needs something, and waits until it is in force, or is refused.
func (n *machine) refused(c need, want bool) {
	n.t.Helper()
	at := needing[c.Name]
	if err := n.run(at.pod); err != nil {
		n.t.Fatal(err)
	}
	err := agent.Await(func() error {
		told, err := n.a.Explain("shop", "db", "c")
		if err != nil || len(told) != 1 {
			return fmt.Errorf("explain: %v (%w)", told, err)
		}
		for _, v := range append(told[0].Values, told[0].PodValues...) {
			if strings.Contains(v.Field, at.field) && v.Applied != want && (!want || strings.Contains(v.Note, c.Without)) {
				n.t.Logf("%s is %q, in force: %v %s", v.Field, v.Value, v.Applied, v.Note)
				return nil
			}
		}
		for _, p := range told[0].Problems {
			if want && strings.Contains(p.Reason, c.Without) {
				n.t.Logf("%s %q: %s", p.Key, p.Value, p.Reason)
				return nil
			}
		}
		return fmt.Errorf("no such value of %s: %+v", at.field, told[0])
	})
	if err != nil {
		n.t.Errorf("refused %v: %v", want, err)
	}
	if err := n.remove(ctr("db").Pod()); err != nil {
		n.t.Error(err)
	}
}
