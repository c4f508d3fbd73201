package hook

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// GPUDevices is the way in which a container gets its GPUs.
type GPUDevices int

// The ways to give GPUs to a container. With GPUByEnv, the GPU support of the runtime adds the device nodes.
const (
	GPUByEnv GPUDevices = iota
	GPUByDeviceNode
	GPUByCDI
)

// GPU gives a pod's containers the GPUs that a scheduler allocated to it, and the HAMi-core
// library to a container with a part of a GPU. The names and values are those of Koordinator 1.7, plugin GPUEnvInject.
type GPU struct {
	// HAMiLibrary is the host path of libvgpu.so; "" if there is none.
	HAMiLibrary string
	// HAMiLock is the host's directory for HAMi-core's lock. NoLockReason is the reason why the agent
	// could not make that directory.
	HAMiLock     string
	NoLockReason string
	Devices      GPUDevices
	// ByUUID names GPUs by UUID instead of index.
	ByUUID bool
	// Nodes are the host's device nodes by path.
	Nodes map[string]lifecycle.Device
}

// GPUOptions tunes the GPU environment hook.
type GPUOptions struct {
	// Enabled switches the hook on.
	Enabled bool `json:"enabled" default:"true"`
	// HAMiLibrary is the host path of libvgpu.so, which is bind-mounted into
	// containers with a part of a GPU. If it is empty, such containers get only the
	// list of devices, and the agent reports that the library is missing.
	HAMiLibrary string `json:"hamiLibrary" check:"path or empty"`
	// HAMiLock is the directory in which containers with a part of a GPU make the
	// lock of HAMi-core. All containers of the node share it. The agent makes the
	// directory, and its parent, which only root can enter. It needs hamiLibrary.
	HAMiLock string `json:"hamiLock" default:"/var/lib/trimtab/hami/lock" check:"path"`
	// Devices is the way in which containers get their GPUs: "env" sets
	// NVIDIA_VISIBLE_DEVICES for the runtime's GPU support, "nodes" also adds the
	// device nodes, and "cdi" requests the CDI device nvidia.com/gpu=NAME.
	Devices string `json:"devices" default:"env" check:"env|nodes|cdi"`
	// Name is the kind of names of GPUs: "index" or "uuid".
	Name string `json:"name" default:"index" check:"index|uuid"`
}

// Make makes the hook for a node.
func (o GPUOptions) Make(n Node, _ *Options) (Hook, error) {
	h := GPU{
		HAMiLibrary: o.HAMiLibrary, ByUUID: o.Name == "uuid", Nodes: n.Host().Devices,
		Devices: map[string]GPUDevices{"nodes": GPUByDeviceNode, "cdi": GPUByCDI}[o.Devices],
	}
	if o.HAMiLibrary != "" && o.HAMiLock != "" {
		if err := n.MakeSharedDir(o.HAMiLock); err != nil {
			h.NoLockReason = err.Error()
		} else {
			h.HAMiLock = o.HAMiLock
		}
	}
	return h, nil
}

// Info describes the hook.
func (h GPU) Info() Info {
	var kernel []string
	if h.Devices == GPUByDeviceNode {
		kernel = []string{"nvidia"}
	}
	return Info{
		Name:           "gpu",
		About:          "GPUs that the scheduler allocated: environment variables, device nodes or CDI names, and the HAMi-core library",
		Stages:         []lifecycle.Kind{lifecycle.CreateContainer},
		Reads:          []string{intent.KoordDevices, intent.KoordGPUIsolation},
		Sets:           []lifecycle.Field{lifecycle.Env, lifecycle.MountPoint, lifecycle.DeviceNode, lifecycle.CDIDevice},
		KernelFeatures: kernel,
		Compose:        "one hook per environment variable, mount and device",
		TestedOn:       "described device nodes only; no GPU was available",
		Differs: []string{
			"with hooks.gpu.devices: nodes or cdi, the request itself has the device nodes. So the runtime knows them, and a systemd daemon-reload does not remove them (koordinator issue 2809)",
			"with hooks.gpu.name: uuid, GPUs are named by UUID, which stays correct if indexes change",
			"HAMi-core's library and lock are mounted only if hooks.gpu.hamiLibrary names the library, and only into containers that were granted the GPU or whose namespace may request it by a rule; otherwise the agent reports that",
			"the library is mounted read-only, and the agent makes the lock's directory (hooks.gpu.hamiLock) in place of the host's /tmp/vgpulock",
			"malformed allocations are reported and the container starts without them",
		},
	}
}

// vgpuLockDir is the directory of HAMi-core's lock in a container. All containers that share a GPU must
// use the same lock, so that only one process starts at a time. HAMi-core needs that to find its own
// process among the processes of the GPU.
const vgpuLockDir = "/tmp/vgpulock"

// cdiGPU is the CDI kind of GPUs in the specifications of NVIDIA's toolkit.
const cdiGPU = "nvidia.com/gpu="

// gpuControlNodes are the device nodes that belong to no single GPU.
var gpuControlNodes = []string{"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"}

// Propose gives one container its GPUs.
func (h GPU) Propose(in *Input, out *Output) {
	gpu := in.Intent.GPU
	if in.Container == "" || !gpu.IsSet() {
		return
	}
	why := lifecycle.Reason{Hook: "gpu", Source: gpu.Key, Text: "allocated by the scheduler"}
	if rule := gpu.V.NodesRefusedBy; rule != "" && h.Devices != GPUByEnv {
		out.report(lifecycle.Problem{
			Key: gpu.Key, Refused: true, Rule: rule,
			Reason: "gpu: the namespace may not ask for devices; the container gets the names of its GPUs in its environment only (authorization: " + rule + ")",
		})
		h.Devices = GPUByEnv
	}
	names, ok := h.names(gpu.V)
	if in.Intent.OnlyGrantedRule != "" && h.Devices != GPUByEnv && ok {
		by, no := h.checkGranted(in, names)
		if no != nil {
			no.Reason = "gpu: the namespace may not ask for devices; the container gets the names of its GPUs in its environment only; " + no.Reason
			out.report(*no)
			h.Devices = GPUByEnv
		} else {
			why.Text += by
		}
	}
	if !ok {
		out.report(lifecycle.Problem{
			Key: gpu.Key, Reason: "gpu: an entry has no GPU id, which hooks.gpu.name: uuid needs; the container gets no GPU",
		})
		return
	}
	if h.Devices == GPUByCDI { // the CDI specification also sets the environment
		for _, n := range names {
			n = cdiGPU + n
			out.setText(in, lifecycle.CDIDevice, n, n, why)
		}
	} else {
		out.setEnv("NVIDIA_VISIBLE_DEVICES", strings.Join(names, ","), why)
	}
	if h.Devices == GPUByDeviceNode {
		h.addNodes(gpu.V.Minors, why, out)
	}
	if gpu.V.Share != nil {
		h.addShare(in, names, why, out)
	}
}

// mayShare reports whether the container may have HAMi-core's files. It may if a rule allows them, if
// it gets the device of the GPU, or if Kubernetes granted it the GPU.
func (h GPU) mayShare(in *Input, names []string, out *Output) bool {
	rule := in.Intent.LibraryGrantedRule
	if rule == "" || h.Devices != GPUByEnv {
		return true
	}
	minors := in.Intent.GPU.V.Minors
	for i, name := range names {
		if in.grantedGPU(name) != "" || in.grantedNode(h.Nodes, "/dev/nvidia"+strconv.Itoa(minors[i])) != "" ||
			i < len(in.Intent.GPU.V.UUIDs) && in.grantedGPU(in.Intent.GPU.V.UUIDs[i]) != "" {
			continue
		}
		no := in.unauthorizedProblem("gpu-library", intent.KoordGPUIsolation, intent.Printable(name), rule, ", and Kubernetes did not grant the GPU to the container")
		no.Then = "the container's share of the GPU is not enforced"
		out.report(no)
		return false
	}
	return true
}

// checkGranted checks GPUs that a container gets only if Kubernetes granted them. It checks device nodes by
// their numbers, because an index or UUID is connected with a minor number only by the pod's annotation.
func (h GPU) checkGranted(in *Input, names []string) (by string, no *lifecycle.Problem) {
	if h.Devices == GPUByCDI {
		return in.checkGranted(in.Intent.GPU.Key, names, in.grantedGPU)
	}
	var paths []string
	for _, m := range in.Intent.GPU.V.Minors {
		paths = append(paths, "/dev/nvidia"+strconv.Itoa(m))
	}
	return in.checkGranted(in.Intent.GPU.Key, paths, func(path string) string { return in.grantedNode(h.Nodes, path) })
}

// names returns the GPUs' names for the runtime's GPU support.
func (h GPU) names(g intent.GPU) ([]string, bool) {
	if h.ByUUID {
		return g.UUIDs, len(g.UUIDs) == len(g.Minors) && !slices.Contains(g.UUIDs, "")
	}
	names := make([]string, len(g.Minors))
	for i, m := range g.Minors {
		names[i] = strconv.Itoa(m)
	}
	return names, true
}

// addNodes adds the device nodes of GPUs, and the control nodes that every GPU user needs, if the
// host has them.
func (h GPU) addNodes(minors []int, why lifecycle.Reason, out *Output) {
	for _, m := range minors {
		out.addDevice(h.Nodes, "/dev/nvidia"+strconv.Itoa(m), why)
	}
	for _, p := range gpuControlNodes {
		if _, has := h.Nodes[p]; has {
			out.addDevice(h.Nodes, p, why)
		}
	}
}

// addShare gives the container its part of a GPU.
func (h GPU) addShare(in *Input, names []string, why lifecycle.Reason, out *Output) {
	share := in.Intent.GPU.V.Share
	without := ""
	switch {
	case h.HAMiLibrary == "":
		without = "hooks.gpu.hamiLibrary is not configured"
	case !h.mayShare(in, names, out):
		return
	case h.HAMiLock == "":
		without = "hooks.gpu.hamiLock: there is no directory for the lock: " + cmp.Or(h.NoLockReason, "none is configured")
	}
	if without != "" {
		out.report(lifecycle.Problem{
			Key: intent.KoordGPUIsolation, Value: "HAMi-core", Reason: without + ": the container's share of the GPU is not enforced",
		})
		return
	}
	why.Text = "its share of a shared GPU"
	out.setEnv("CUDA_DEVICE_MEMORY_LIMIT", strconv.FormatInt(share.Memory, 10), why)
	if share.Core > 0 {
		out.setEnv("CUDA_DEVICE_SM_LIMIT", strconv.FormatInt(share.Core, 10), why)
	}
	out.setEnv("LD_PRELOAD", h.HAMiLibrary, why)
	out.addMount(h.HAMiLibrary, h.HAMiLibrary, readOnly, why)
	out.addMount(vgpuLockDir, h.HAMiLock, readWrite, why)
}
