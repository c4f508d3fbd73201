package real

import (
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/test/real/internal/host"
)

// PodID is the runtime's id of a sandbox.
type PodID string

// QoS is a Kubernetes QoS class. The path of the pod's cgroup depends on it.
type QoS string

// The classes. The zero value of PodSpec.QoS is BestEffort, as for a pod without requests.
const (
	BestEffort QoS = "besteffort"
	Burstable  QoS = "burstable"
	Guaranteed QoS = "guaranteed"
)

// PodSpec describes a pod. If Name or UID is empty, the pod gets a value that is unique within the test.
type PodSpec struct {
	Namespace, Name, UID string
	Labels, Annotations  map[string]string
	QoS                  QoS
	// Resources are the resources of the pod as a whole. RunPod writes them to the pod's cgroup, as a kubelet does, and
	// sends them to the runtime.
	Resources *cri.LinuxContainerResources
	// OwnNetwork gives the pod its own network namespace, without the host's interfaces. The test must call AddNetwork
	// before.
	OwnNetwork bool
}

// podRecord is what the package stores about a running pod.
type podRecord struct {
	spec   PodSpec
	config *cri.PodSandboxConfig
}

// networkPlugin is a CNI plugin that reports an address and makes no interface.
const networkPlugin = `#!/bin/sh
cat >/dev/null
case $CNI_COMMAND in
ADD) echo '{"cniVersion": "1.0.0", "interfaces": [{"name": "eth0", "sandbox": "'$CNI_NETNS'"}], "ips": [{"interface": 0, "address": "10.1.0.5/24"}]}' ;;
VERSION) echo '{"cniVersion": "1.0.0", "supportedVersions": ["1.0.0"]}' ;;
esac
`

// AddNetwork configures CNI, so that pods can have their own network namespace. The only interface in it is the
// loopback interface.
func (c *Containerd) AddNetwork() {
	c.t.Helper()
	c.check("configure CNI", errors.Join(
		os.WriteFile(filepath.Join(c.dir, "cni/bin/none"), []byte(networkPlugin), 0o700), //nolint:gosec // the file is a program
		os.WriteFile(filepath.Join(c.dir, "cni/conf.d/10-none.conflist"), []byte(`{"cniVersion": "1.0.0", "name": "none", "plugins": [{"type": "none"}]}`), 0o600),
	))
	Eventually(c.t, startTimeout, func() error {
		ctx, cancel := c.callContext()
		defer cancel()
		status, err := c.direct.Status(ctx, &cri.StatusRequest{})
		for _, s := range status.GetStatus().GetConditions() {
			if s.Type == cri.NetworkReady && !s.Status {
				err = fmt.Errorf("%s: %s", s.Reason, s.Message)
			}
		}
		return err
	})
}

// RunPod makes the pod's cgroup and runs its sandbox. The pod has the host's network if spec.OwnNetwork is not set.
func (c *Containerd) RunPod(spec PodSpec) PodID {
	c.t.Helper()
	pod, err := c.TryRunPod(spec)
	c.check("run pod", err)
	return pod
}

// TryRunPod makes the pod's cgroup and runs its sandbox, and returns an error instead of ending the test.
func (c *Containerd) TryRunPod(spec PodSpec) (PodID, error) {
	spec = withDefaults(spec)
	cgroup := filepath.Join(c.parent, podCgroup(spec))
	if err := c.makePodCgroup(cgroup, spec); err != nil {
		return "", err
	}
	config := c.podConfig(spec, cgroup)
	ctx, cancel := c.callContext()
	defer cancel()
	answer, err := c.client.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: config})
	if err != nil {
		return "", fmt.Errorf("run pod %s: %w", spec.Name, err)
	}
	pod := PodID(answer.PodSandboxId)
	c.mu.Lock()
	c.pods[pod] = podRecord{spec, config}
	c.mu.Unlock()
	return pod, nil
}

// withDefaults returns a spec with values for its empty fields.
func withDefaults(s PodSpec) PodSpec {
	if s.UID == "" {
		s.UID = uid()
	}
	if s.Name == "" {
		s.Name = "pod-" + s.UID[:8]
	}
	if s.Namespace == "" {
		s.Namespace = "default"
	}
	if s.QoS == "" {
		s.QoS = BestEffort
	}
	return s
}

// uid returns a random UID.
func uid() string {
	var b [16]byte
	rand.Read(b[:])
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// podCgroup returns the path of a pod's cgroup below the cgroup parent.
func podCgroup(s PodSpec) string {
	if s.QoS == Guaranteed {
		return "kubepods/pod" + s.UID
	}
	return "kubepods/" + string(s.QoS) + "/pod" + s.UID
}

// podConfig returns the CRI's configuration of a pod's sandbox. cgroup is the pod's cgroup.
func (c *Containerd) podConfig(s PodSpec, cgroup string) *cri.PodSandboxConfig {
	labels := map[string]string{
		"io.kubernetes.pod.name": s.Name, "io.kubernetes.pod.namespace": s.Namespace, "io.kubernetes.pod.uid": s.UID,
	}
	maps.Copy(labels, s.Labels)
	network := cri.NamespaceMode_NODE
	if s.OwnNetwork {
		network = cri.NamespaceMode_POD
	}
	return &cri.PodSandboxConfig{
		Metadata:     &cri.PodSandboxMetadata{Name: s.Name, Namespace: s.Namespace, Uid: s.UID},
		LogDirectory: filepath.Join(c.dir, "log", s.UID),
		Labels:       labels,
		Annotations:  s.Annotations,
		Linux: &cri.LinuxPodSandboxConfig{
			CgroupParent: cgroup,
			Resources:    s.Resources,
			SecurityContext: &cri.LinuxSandboxSecurityContext{NamespaceOptions: &cri.NamespaceOption{
				Network: network,
				Pid:     cri.NamespaceMode_CONTAINER,
			}},
		},
	}
}

// makePodCgroup makes the pod's cgroup, as a kubelet does before it calls the runtime.
func (c *Containerd) makePodCgroup(cgroup string, s PodSpec) error {
	c.cgroupMu.Lock()
	defer c.cgroupMu.Unlock()
	if err := host.MakeCgroup(c.hierarchies, cgroup); err != nil {
		return err
	}
	r := s.Resources
	if r == nil {
		r = &cri.LinuxContainerResources{}
	}
	shares := r.CpuShares
	if shares == 0 && s.QoS == BestEffort {
		shares = 2
	}
	values := map[string]string{}
	if c.CgroupVersion() == 1 {
		set(values, "cpu.shares", shares)
		set(values, "cpu.cfs_period_us", r.CpuPeriod)
		set(values, "cpu.cfs_quota_us", r.CpuQuota)
		set(values, "memory.limit_in_bytes", r.MemoryLimitInBytes)
	} else {
		if shares > 0 {
			set(values, "cpu.weight", 1+(shares-2)*9999/262142)
		}
		if r.CpuQuota > 0 {
			values["cpu.max"] = fmt.Sprintf("%d %d", r.CpuQuota, max(r.CpuPeriod, 1000))
		}
		set(values, "memory.max", r.MemoryLimitInBytes)
	}
	if r.CpusetCpus != "" {
		values["cpuset.cpus"] = r.CpusetCpus
	}
	for file, value := range values {
		path, err := c.file(cgroup, file)
		if err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(value), 0o644); err != nil {
			return fmt.Errorf("write %q to a file of the pod's cgroup: %w", value, err)
		}
	}
	return nil
}

// set adds the value of a cgroup file to values, if the value is not 0.
func set(values map[string]string, file string, value int64) {
	if value != 0 {
		values[file] = strconv.FormatInt(value, 10)
	}
}

// StopPod stops the pod's sandbox and containers.
func (c *Containerd) StopPod(pod PodID) {
	c.t.Helper()
	ctx, cancel := c.callContext()
	defer cancel()
	_, err := c.client.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: string(pod)})
	c.check("stop pod", err)
}

// RemovePod stops and removes the pod. Then it removes the pod's cgroup, as a kubelet does.
func (c *Containerd) RemovePod(pod PodID) {
	c.t.Helper()
	c.check("remove pod", c.TryRemovePod(pod))
}

// TryRemovePod stops and removes the pod and its cgroup, and returns an error instead of ending the test.
func (c *Containerd) TryRemovePod(pod PodID) error {
	ctx, cancel := c.callContext()
	defer cancel()
	if _, err := c.client.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: string(pod)}); err != nil {
		return err
	}
	if _, err := c.client.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: string(pod)}); err != nil {
		return err
	}
	c.mu.Lock()
	record, ok := c.pods[pod]
	delete(c.pods, pod)
	c.mu.Unlock()
	if !ok {
		return nil
	}
	return host.RemoveCgroups(c.hierarchies, record.config.Linux.CgroupParent)
}

// PodCgroup returns the pod's cgroup as a path from the root of every hierarchy.
func (c *Containerd) PodCgroup(pod PodID) string {
	c.t.Helper()
	return c.pod(pod).config.Linux.CgroupParent
}

// PodKernelFile returns the text of a file of the pod's cgroup, without the newline.
func (c *Containerd) PodKernelFile(pod PodID, file string) string {
	c.t.Helper()
	path, err := c.file(c.PodCgroup(pod), file)
	c.check("find a cgroup file of the pod", err)
	text, err := os.ReadFile(path)
	c.check("read a cgroup file of the pod", err)
	return strings.TrimSpace(string(text))
}

// pod returns the record of a pod. It ends the test if this containerd has not run the pod.
func (c *Containerd) pod(id PodID) podRecord {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	record, ok := c.pods[id]
	if !ok {
		c.t.Fatalf("this containerd has not run pod %s", id)
	}
	return record
}
