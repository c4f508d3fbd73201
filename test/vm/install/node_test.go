package install_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/test/vm"
	"github.com/trimtab/trimtab/test/vm/controlplane"
)

// node is a guest with a kubelet that the API server knows.
type node struct {
	c         *cluster
	m         *vm.Machine
	name      string
	address   string
	cri       vm.CRI
	untouched string // tops has the values before Trimtab was installed
}

const kubeletConfig = "/var/lib/kubelet/config.yaml"

// plugin is a CNI plugin for pods without network: it returns an address and makes no interface.
const plugin = `#!/bin/sh
cat >/dev/null
case $CNI_COMMAND in
ADD) echo '{"cniVersion": "1.0.0", "interfaces": [{"name": "eth0", "sandbox": "'$CNI_NETNS'"}], "ips": [{"interface": 0, "address": "10.1.0.5/24"}]}' ;;
VERSION) echo '{"cniVersion": "1.0.0", "supportedVersions": ["1.0.0"]}' ;;
esac
`

// join starts a guest as one of the nodes n1, n2, …; each of these users of the control plane is the
// kubelet of one. The address is the guest's own, because all guests have the same address in QEMU's
// network.
func (c *cluster) join(i int, shape vm.Topology) *node {
	c.t.Helper()
	m := vm.Start(c.t, vm.Guest{Topology: shape, Stage: vm.Containerd})
	n := &node{c: c, m: m, name: fmt.Sprintf("n%d", i), address: fmt.Sprintf("10.0.3.%d", i), cri: m.CRI(vm.CRISocket)}
	c.nodes[n.address] = n
	m.Put("/usr/local/bin/forward", 0o755, built(c, "test/vm", "./install/forward"))
	m.Put("/opt/cni/bin/none", 0o755, []byte(plugin))
	m.Put("/etc/cni/net.d/10-none.conflist", 0o644, []byte(`{"cniVersion": "1.0.0", "name": "none", "plugins": [{"type": "none"}]}`))
	m.Put("/etc/kubernetes/kubelet.conf", 0o600, c.kubeconfig(n.name))
	m.Put(kubeletConfig, 0o644, n.kubelet())
	m.Sh("ip addr add " + n.address + "/32 dev eth0; ip addr add " + controlplane.ServiceAddress + "/32 dev lo")
	m.Spawn("service", "/usr/local/bin/forward", controlplane.ServiceAddress+":443", fmt.Sprintf("%s:%d", controlplane.HostAddress, c.plane.Port))
	m.Spawn("kubelet", "/usr/local/bin/kubelet", "--config="+kubeletConfig, "--kubeconfig=/etc/kubernetes/kubelet.conf",
		"--hostname-override="+n.name, "--node-ip="+n.address, "--root-dir=/var/lib/kubelet", "--cert-dir=/var/lib/kubelet/pki", "--v=2")
	c.await(n.name+" is ready", func(ctx context.Context) error { return n.ready(ctx) })
	n.untouched = n.tops()
	return n
}

// tops returns files of the cgroups above pods, which the kubelet writes only at its start.
func (n *node) tops() string {
	return n.m.Sh("cd /sys/fs/cgroup/kubepods; for file in cpuset.cpus cpuset.mems cpuset.cpus.partition cpu.max cpu.idle memory.max; do grep -H '' $file burstable/$file besteffort/$file; done")
}

// kubelet returns the kubelet's configuration. JSON is valid YAML.
func (n *node) kubelet() []byte {
	n.c.t.Helper()
	text, err := json.MarshalIndent(map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"containerRuntimeEndpoint": "unix://" + vm.CRISocket, "cgroupDriver": "cgroupfs",
		"authentication": map[string]any{"anonymous": map[string]any{"enabled": true}, "webhook": map[string]any{"enabled": false}},
		"authorization":  map[string]any{"mode": "AlwaysAllow"},
		"failSwapOn":     false, "makeIPTablesUtilChains": false, "resolvConf": "",
		"enforceNodeAllocatable": []string{"pods"}, "evictionHard": map[string]any{"memory.available": "50Mi"},
		"imageGCHighThresholdPercent": 100, "syncFrequency": "10s", "runtimeRequestTimeout": "5m", "nodeLeaseDurationSeconds": 240,
	}, "", "  ")
	if err != nil {
		n.c.t.Fatal(err)
	}
	return text
}

// ready is the state of the API server's Node object.
func (n *node) ready(ctx context.Context) error {
	o, err := n.c.get(ctx, "v1/nodes", "", n.name)
	if err != nil {
		return err
	}
	conditions, _, _ := nested[[]any](o.Object, "status", "conditions")
	for _, each := range conditions {
		if is, _ := each.(map[string]any); is["type"] == "Ready" && is["status"] == "True" {
			return nil
		}
	}
	return fmt.Errorf("%w: conditions %v", errNotYet, conditions)
}

// running is a container as the kernel shows it.
type running struct {
	ID, CPUs, Weight, Quota, Set, Mems, Memory string
}

// container reads the only running container of a pod of this node.
func (n *node) container(ctx context.Context, namespace, pod string) (running, error) {
	answer, err := n.cri.ListContainers(ctx, &cri.ListContainersRequest{Filter: &cri.ContainerFilter{
		State:         &cri.ContainerStateValue{State: cri.ContainerState_CONTAINER_RUNNING},
		LabelSelector: map[string]string{"io.kubernetes.pod.name": pod, "io.kubernetes.pod.namespace": namespace},
	}})
	if err != nil {
		return running{}, err
	}
	if len(answer.Containers) != 1 {
		return running{}, fmt.Errorf("%d containers of %s run", len(answer.Containers), pod)
	}
	id := answer.Containers[0].Id
	r, err := n.m.Exec(ctx, "sh", "-ec", "cd $(find /sys/fs/cgroup/kubepods -type d -name "+id+"); cat cpuset.cpus.effective cpu.weight cpu.max cpuset.cpus cpuset.mems memory.max")
	if err != nil {
		return running{}, err
	}
	lines := strings.Split(strings.TrimSpace(r.Stdout), "\n")
	if r.Code != 0 || len(lines) != 6 {
		return running{}, fmt.Errorf("cgroup of %s: %q %s", pod, r.Stdout, r.Stderr)
	}
	return running{id, lines[0], lines[1], lines[2], lines[3], lines[4], lines[5]}, nil
}

// built returns a static program of a module of this checkout.
func built(c *cluster, module, pkg string) []byte {
	c.t.Helper()
	file := filepath.Join(c.t.TempDir(), "program")
	cmd := exec.CommandContext(c.t.Context(), "go", "build", "-trimpath", "-ldflags=-s -w", "-o", file, pkg)
	cmd.Dir, cmd.Env = filepath.Join(c.root, module), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		c.t.Fatalf("build %s: %v\n%s", pkg, err, out)
	}
	return read(c, file)
}

func read(c *cluster, file string) []byte {
	c.t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		c.t.Fatal(err)
	}
	return b
}

// nested reads a field of an object.
func nested[T any](o map[string]any, path ...string) (value T, found bool, err error) {
	var at any = o
	for _, key := range path {
		m, ok := at.(map[string]any)
		if !ok {
			return value, false, nil
		}
		if at, found = m[key]; !found {
			return value, false, nil
		}
	}
	value, ok := at.(T)
	if !ok {
		return value, true, fmt.Errorf("%v is a %T", path, at)
	}
	return value, true, nil
}
