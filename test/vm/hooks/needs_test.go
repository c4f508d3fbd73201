package hooks_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/test/vm"
	"github.com/trimtab/trimtab/test/vm/agent"
	"github.com/trimtab/trimtab/test/vm/cluster/objects"
)

const chart = "../../../deploy/charts/trimtab"

// capability is one that needs.yaml of the chart names: for is the hook that needs it, and without is in what the agent
// says of a value that the kernel refuses without it.
type capability struct{ Name, For, Without string }

// needing says of the hooks that need a capability on which guest they work, and which field they set, as explain names it.
var needing = map[string]struct {
	guest vm.Guest
	field string
}{
	"coreSched": {vm.Guest{Kernel: "6.12-core", Topology: vm.TwoCores}, "core.sched"},
	"partition": {vm.Guest{Kernel: "6.12"}, "cpuset.cpus.partition"},
}

// TestNeeds runs the agent as a container, with what the chart renders for it: with the capabilities that needs.yaml
// names, what needs them is in force. Without, the kernel refuses it, and explain has the words of needs.yaml.
func TestNeeds(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(chart, "needs.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var needs struct{ Capabilities []capability }
	if err := yaml.Unmarshal(text, &needs); err != nil || len(needs.Capabilities) == 0 {
		t.Fatalf("%+v, %v", needs, err)
	}
	for _, c := range needs.Capabilities {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			at, known := needing[c.For]
			if !known || c.Without == "" {
				t.Fatal("nothing shows what breaks without this capability")
			}
			p := rendered(t, "config.cluster.enabled=false", "config.hooks."+c.For+".enabled=true")
			n := boot(t, at.guest)
			for name, without := range map[string]string{"with": "", "without": c.Name} {
				t.Run(name, func(t *testing.T) {
					n := n.of(t)
					n.contained(p, without)
					n.refused(c, without != "")
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

// contained runs the agent as a kubelet would, in a container of the runtime, without one of its capabilities. The
// container's image has no agent: the checkout's program is mounted.
func (n *machine) contained(p plan, without string) {
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
		Metadata: &cri.PodSandboxMetadata{Name: "trimtab", Namespace: "kube-system", Uid: uid, Attempt: uint32(len(without))},
		Labels:   labels, LogDirectory: "/var/log/pods/" + uid,
		Linux: &cri.LinuxPodSandboxConfig{
			CgroupParent: "/kubepods/pod" + uid, SecurityContext: &cri.LinuxSandboxSecurityContext{NamespaceOptions: namespaces},
		},
	}
	container := &cri.ContainerConfig{
		Metadata: &cri.ContainerMetadata{Name: "trimtab"}, Image: &cri.ImageSpec{Image: vm.Image("probe")}, Labels: labels, LogPath: "trimtab.log",
		Command: []string{"/trimtab"}, Args: from.Args, Mounts: mounts(n, p.pod),
		Linux: &cri.LinuxContainerConfig{Resources: &cri.LinuxContainerResources{}, SecurityContext: confined(from.SecurityContext, without, namespaces)},
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
		ctx, cancel := context.WithTimeout(context.Background(), agent.Patience)
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
	if err := errors.Join(err, n.a.Attached()); err != nil {
		n.t.Fatal(err)
	}
}

// confined is the security context of a container, less a capability.
func confined(s *corev1.SecurityContext, without string, namespaces *cri.NamespaceOption) *cri.LinuxContainerSecurityContext {
	out := &cri.LinuxContainerSecurityContext{
		Privileged: *s.Privileged, ReadonlyRootfs: *s.ReadOnlyRootFilesystem, NoNewPrivs: !*s.AllowPrivilegeEscalation,
		RunAsUser: &cri.Int64Value{Value: *s.RunAsUser}, NamespaceOptions: namespaces, Capabilities: &cri.Capability{},
		Seccomp: &cri.SecurityProfile{ProfileType: cri.SecurityProfile_RuntimeDefault},
	}
	for _, c := range s.Capabilities.Drop {
		out.Capabilities.DropCapabilities = append(out.Capabilities.DropCapabilities, string(c))
	}
	for _, c := range s.Capabilities.Add {
		if string(c) != without {
			out.Capabilities.AddCapabilities = append(out.Capabilities.AddCapabilities, string(c))
		}
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

// refused runs a pod with a value that needs a capability, and waits until it is in force, or is refused.
func (n *machine) refused(c capability, want bool) {
	n.t.Helper()
	if err := n.run(labelled("db", "LSE", "2-3")); err != nil {
		n.t.Fatal(err)
	}
	err := agent.Await(func() error {
		told, err := n.a.Explain("shop", "db", "c")
		if err != nil || len(told) != 1 {
			return fmt.Errorf("explain: %v (%w)", told, err)
		}
		for _, v := range append(told[0].Values, told[0].PodValues...) {
			if strings.Contains(v.Field, needing[c.For].field) && v.Applied != want && (!want || strings.Contains(v.Note, c.Without)) {
				n.t.Logf("%s is %q, in force: %v %s", v.Field, v.Value, v.Applied, v.Note)
				return nil
			}
		}
		return fmt.Errorf("no such value of %s: %+v", c.For, told[0])
	})
	if err != nil {
		n.t.Errorf("refused %v: %v", want, err)
	}
	if err := n.remove(ctr("db").Pod()); err != nil {
		n.t.Error(err)
	}
}
