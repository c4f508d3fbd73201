package real

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/test/real/internal/host"
	"github.com/trimtab/trimtab/test/real/view"
)

// viewTimeout is how long a test waits for a report of the test program in a container, or for the end of a container.
const viewTimeout = 30 * time.Second

// ContainerID is the runtime's id of a container.
type ContainerID string

// View is the report that the probe prints when it starts. The probe is the test program that runs in the containers.
type View = view.View

// ContainerSpec describes a container. If Image is "", the container runs the image with the probe (see View). Args are
// the arguments of the program in the image. For example, "exit", "3" makes the probe exit with the code 3.
type ContainerSpec struct {
	Name        string
	Attempt     uint32 // how often the kubelet has created the container before
	Image       string
	Args        []string
	Env         map[string]string
	Labels      map[string]string
	Annotations map[string]string
	Resources   *cri.LinuxContainerResources
	Devices     map[string]string // paths of the devices on the host, by their paths in the container
}

// containerRecord is what the package stores about a created container.
type containerRecord struct {
	pod     PodID
	logFile string
}

// CreateContainer creates a container in a pod without starting it.
func (c *Containerd) CreateContainer(pod PodID, spec ContainerSpec) ContainerID {
	c.t.Helper()
	id, err := c.TryCreateContainer(pod, spec)
	c.check("create container", err)
	return id
}

// TryCreateContainer creates a container in a pod without starting it, and returns an error instead of ending the test.
func (c *Containerd) TryCreateContainer(pod PodID, spec ContainerSpec) (ContainerID, error) {
	c.mu.Lock()
	record, ok := c.pods[pod]
	c.mu.Unlock()
	if !ok {
		return "", fmt.Errorf("this containerd has not run pod %s", pod)
	}
	if spec.Name == "" {
		spec.Name = "c-" + uid()[:8]
	}
	config := c.containerConfig(spec, record.spec)
	ctx, cancel := c.callContext()
	defer cancel()
	answer, err := c.client.CreateContainer(ctx, &cri.CreateContainerRequest{PodSandboxId: string(pod), Config: config, SandboxConfig: record.config})
	if err != nil {
		return "", fmt.Errorf("create container %s: %w", spec.Name, err)
	}
	id := ContainerID(answer.ContainerId)
	c.mu.Lock()
	c.containers[id] = containerRecord{pod, filepath.Join(record.config.LogDirectory, config.LogPath)}
	c.mu.Unlock()
	return id, nil
}

// CreateRequest returns the request that CreateContainer sends, for tests that send the request themselves and cancel
// the call.
func (c *Containerd) CreateRequest(pod PodID, spec ContainerSpec) *cri.CreateContainerRequest {
	c.t.Helper()
	record := c.pod(pod)
	return &cri.CreateContainerRequest{PodSandboxId: string(pod), Config: c.containerConfig(spec, record.spec), SandboxConfig: record.config}
}

// containerConfig returns the CRI's configuration of a container in a pod.
func (c *Containerd) containerConfig(s ContainerSpec, pod PodSpec) *cri.ContainerConfig {
	labels := map[string]string{
		"io.kubernetes.container.name": s.Name, "io.kubernetes.pod.name": pod.Name,
		"io.kubernetes.pod.namespace": pod.Namespace, "io.kubernetes.pod.uid": pod.UID,
	}
	maps.Copy(labels, s.Labels)
	image := s.Image
	if image == "" {
		image = c.images.Image("probe")
	}
	config := &cri.ContainerConfig{
		Metadata:    &cri.ContainerMetadata{Name: s.Name, Attempt: s.Attempt},
		Image:       &cri.ImageSpec{Image: image},
		Args:        s.Args,
		Labels:      labels,
		Annotations: s.Annotations,
		LogPath:     fmt.Sprintf("%s-%d.log", s.Name, s.Attempt),
		Linux:       &cri.LinuxContainerConfig{Resources: s.Resources},
	}
	for _, key := range slices.Sorted(maps.Keys(s.Env)) {
		config.Envs = append(config.Envs, &cri.KeyValue{Key: key, Value: []byte(s.Env[key])})
	}
	for _, at := range slices.Sorted(maps.Keys(s.Devices)) {
		config.Devices = append(config.Devices, &cri.Device{ContainerPath: at, HostPath: s.Devices[at], Permissions: "rwm"})
	}
	return config
}

// StartContainer starts a created container.
func (c *Containerd) StartContainer(id ContainerID) {
	c.t.Helper()
	c.check("start container", c.TryStartContainer(id))
}

// TryStartContainer starts a created container, and returns an error instead of ending the test.
func (c *Containerd) TryStartContainer(id ContainerID) error {
	ctx, cancel := c.callContext()
	defer cancel()
	_, err := c.client.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: string(id)})
	return err
}

// RunContainer creates and starts a container.
func (c *Containerd) RunContainer(pod PodID, spec ContainerSpec) ContainerID {
	c.t.Helper()
	id := c.CreateContainer(pod, spec)
	c.StartContainer(id)
	return id
}

// UpdateResources sends UpdateContainerResources, as a kubelet does for its CPU manager and after a resize.
func (c *Containerd) UpdateResources(id ContainerID, r *cri.LinuxContainerResources) {
	c.t.Helper()
	c.check("update container", c.TryUpdateResources(id, r))
}

// TryUpdateResources sends UpdateContainerResources, and returns an error instead of ending the test.
func (c *Containerd) TryUpdateResources(id ContainerID, r *cri.LinuxContainerResources) error {
	ctx, cancel := c.callContext()
	defer cancel()
	_, err := c.client.UpdateContainerResources(ctx, &cri.UpdateContainerResourcesRequest{ContainerId: string(id), Linux: r})
	return err
}

// StopContainer stops a container with a grace period. It is no error if the container is already stopped.
func (c *Containerd) StopContainer(id ContainerID) {
	c.t.Helper()
	c.check("stop container", c.TryStopContainer(id))
}

// TryStopContainer stops a container with a grace period, and returns an error instead of ending the test.
func (c *Containerd) TryStopContainer(id ContainerID) error {
	ctx, cancel := c.callContext()
	defer cancel()
	_, err := c.client.StopContainer(ctx, &cri.StopContainerRequest{ContainerId: string(id), Timeout: 10})
	return err
}

// RemoveContainer removes a container, running or not.
func (c *Containerd) RemoveContainer(id ContainerID) {
	c.t.Helper()
	c.check("remove container", c.TryRemoveContainer(id))
}

// TryRemoveContainer removes a container, and returns an error instead of ending the test.
func (c *Containerd) TryRemoveContainer(id ContainerID) error {
	ctx, cancel := c.callContext()
	defer cancel()
	if _, err := c.client.RemoveContainer(ctx, &cri.RemoveContainerRequest{ContainerId: string(id)}); err != nil {
		return err
	}
	c.mu.Lock()
	delete(c.containers, id)
	c.mu.Unlock()
	return nil
}

// Status returns the runtime's status of a container.
func (c *Containerd) Status(id ContainerID) *cri.ContainerStatus {
	c.t.Helper()
	status, _, err := c.status(id)
	c.check("get the status of the container", err)
	return status
}

// ContainerPID returns the pid of the container's first process; 0 if there is none.
func (c *Containerd) ContainerPID(id ContainerID) int {
	c.t.Helper()
	_, pid, err := c.status(id)
	c.check("get the status of the container", err)
	return pid
}

// status returns the runtime's status of a container and the pid of its first process; 0 if there is none.
func (c *Containerd) status(id ContainerID) (*cri.ContainerStatus, int, error) {
	ctx, cancel := c.callContext()
	defer cancel()
	answer, err := c.client.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: string(id), Verbose: true})
	if err != nil {
		return nil, 0, err
	}
	var info struct{ PID int }
	if text := answer.Info["info"]; text != "" {
		if err := json.Unmarshal([]byte(text), &info); err != nil {
			return nil, 0, err
		}
	}
	return answer.Status, info.PID, nil
}

// WaitExit waits until the container has ended and returns its exit code.
func (c *Containerd) WaitExit(id ContainerID) int32 {
	c.t.Helper()
	var code int32
	Eventually(c.t, viewTimeout, func() error {
		status, _, err := c.status(id)
		if err != nil {
			return err
		}
		if status.State != cri.ContainerState_CONTAINER_EXITED {
			return fmt.Errorf("the container is in state %v", status.State)
		}
		code = status.ExitCode
		return nil
	})
	return code
}

// FirstView waits for the report that the probe in a container prints when it starts.
func (c *Containerd) FirstView(id ContainerID) View {
	c.t.Helper()
	seen, err := c.TryFirstView(id)
	c.check("wait for the first report of the probe", err)
	return seen
}

// TryFirstView waits for the first report of a probe, and returns an error instead of ending the test.
func (c *Containerd) TryFirstView(id ContainerID) (View, error) {
	var seen View
	return seen, c.awaitLine(id, 0, func(line string) error { return json.Unmarshal([]byte(line), &seen) })
}

// LogFile returns the path of a container's log file.
func (c *Containerd) LogFile(id ContainerID) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.containers[id].logFile
}

// TryInForce waits for the second report of a probe. The probe must run with the argument "await" and a list of cgroup
// files with values. The result started is the time at which the probe started. The result seen is the time at which
// all these files had their values.
func (c *Containerd) TryInForce(id ContainerID) (started, seen time.Time, err error) {
	first, err := c.TryFirstView(id)
	if err != nil {
		return started, seen, err
	}
	err = c.awaitLine(id, 1, func(line string) error {
		ns, err := strconv.ParseInt(line, 10, 64)
		seen = time.Unix(0, ns)
		return err
	})
	return time.Unix(0, first.Started), seen, err
}

// awaitLine waits until a container's log has line n, counted from 0, and passes this line to the function read.
func (c *Containerd) awaitLine(id ContainerID, n int, read func(string) error) error {
	c.mu.Lock()
	record, ok := c.containers[id]
	c.mu.Unlock()
	if !ok {
		return fmt.Errorf("this containerd has no container %s", id)
	}
	return poll(viewTimeout, func() error {
		text, err := os.ReadFile(record.logFile)
		if err != nil {
			return err
		}
		line, ok := lineOf(string(text), n)
		if !ok {
			return errors.New("the probe has not reported yet")
		}
		return read(line)
	})
}

// firstLine returns the first line of a container's standard output in the text of a log file (see lineOf).
func firstLine(text string) (string, bool) { return lineOf(text, 0) }

// lineOf returns line n, counted from 0, of a container's standard output in the text of a log file. The entries have
// the CRI's log format: time, stream, tag and text. The tag is F for the end of a line, or P if the next entry
// continues the line.
func lineOf(text string, n int) (string, bool) {
	var line strings.Builder
	for entry := range strings.Lines(text) {
		fields := strings.SplitN(strings.TrimSuffix(entry, "\n"), " ", 4)
		if len(fields) < 4 || fields[1] != "stdout" || !strings.HasSuffix(entry, "\n") {
			continue
		}
		line.WriteString(fields[3])
		if fields[2] != "F" {
			continue
		}
		if n == 0 {
			return line.String(), true
		}
		n--
		line.Reset()
	}
	return "", false
}

// CgroupDirs returns the container's cgroup directories by controller, from /proc/<pid>/cgroup of its first process.
func (c *Containerd) CgroupDirs(id ContainerID) map[string]string {
	c.t.Helper()
	pid := c.ContainerPID(id)
	if pid == 0 {
		c.t.Fatalf("container %s has no process", id)
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	c.check("read the cgroups of the container", err)
	dirs := map[string]string{}
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		for _, h := range c.hierarchies {
			if len(parts) == 3 && (parts[1] == strings.Join(h.Controllers, ",") || parts[1] == "" && h.Unified) {
				for _, controller := range h.Controllers {
					dirs[controller] = filepath.Join(h.Mount, parts[2])
				}
			}
		}
	}
	return dirs
}

// KernelFile returns the text of a file of a running container's cgroup, such as cpuset.cpus, without the newline.
func (c *Containerd) KernelFile(id ContainerID, file string) string {
	c.t.Helper()
	controller, _, _ := strings.Cut(file, ".")
	dir, ok := c.CgroupDirs(id)[controller]
	if !ok {
		c.t.Fatalf("container %s is in no cgroup of the controller %s", id, controller)
	}
	text, err := os.ReadFile(filepath.Join(dir, file))
	c.check("read a cgroup file", err)
	return strings.TrimSpace(string(text))
}

// WriteKernelFile writes a file of a running container's cgroup directly, as a third program besides the agent and the
// runtime.
func (c *Containerd) WriteKernelFile(id ContainerID, file, value string) {
	c.t.Helper()
	controller, _, _ := strings.Cut(file, ".")
	c.check("write a cgroup file", os.WriteFile(filepath.Join(c.CgroupDirs(id)[controller], file), []byte(value), 0o644))
}

// file returns the path of a cgroup's file in the hierarchy of the file's controller.
func (c *Containerd) file(cgroup, file string) (string, error) {
	controller, _, _ := strings.Cut(file, ".")
	h, err := host.HierarchyFor(c.hierarchies, controller)
	if err != nil {
		return "", err
	}
	return filepath.Join(h.Mount, cgroup, file), nil
}

// CgroupVersion returns the cgroup version of the hierarchy with the cpuset controller. On a host with both versions
// this is 1.
func (c *Containerd) CgroupVersion() int {
	if h, err := host.HierarchyFor(c.hierarchies, "cpuset"); err == nil && h.Unified {
		return 2
	}
	return 1
}
