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

// The ways to give GPUs to a container.
const (
	GPUByEnv        GPUDevices = iota // an environment variable names the GPUs, and the runtime's GPU support adds the device nodes
	GPUByDeviceNode                   // the hook sets the same environment variable, and adds the device nodes itself
	GPUByCDI                          // the hook requests CDI devices
)

// GPU gives the containers of a pod the GPUs that a scheduler allocated to the pod. It gives a container with a part of
// a GPU also the HAMi-core library. The names and values are those of Koordinator 1.7, plugin GPUEnvInject.
type GPU struct {
	// HAMiLibrary is the host path of libvgpu.so; "" if there is none.
	HAMiLibrary string
	// HAMiLock is the host's directory for HAMi-core's lock. NoLockReason is the reason why the agent
	// could not make that directory.
	HAMiLock     string
	NoLockReason string
	Devices      GPUDevices
	// ByUUID means that the hook names GPUs by UUID, not by index.
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
	// lock of HAMi-core. All containers of the node share the directory. The agent
	// makes the directory and its parent; only root can enter the parent. The key
	// has no effect without hamiLibrary.
	HAMiLock string `json:"hamiLock" default:"/var/lib/trimtab/hami/lock" check:"path"`
	// Devices is the way in which containers get their GPUs: "env" sets
	// NVIDIA_VISIBLE_DEVICES for the runtime's GPU support, "nodes" also adds the
	// device nodes, and "cdi" requests the CDI device nvidia.com/gpu=NAME.
	Devices string `json:"devices" default:"env" check:"env|nodes|cdi"`
	// Name is what the hook uses as the name of a GPU: "index" or "uuid".
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
			"HAMi-core's library and lock are mounted only if hooks.gpu.hamiLibrary names the library. The container must have the GPU from Kubernetes, or an authorization rule must allow the library for its namespace. Otherwise the agent reports that the share is not enforced",
			"the library is mounted read-only, and the agent makes the lock's directory (hooks.gpu.hamiLock) in place of the host's /tmp/vgpulock",
			"a malformed allocation is reported, and the container starts without the GPUs in it",
		},
	}
}

// vgpuLockDir is the directory of HAMi-core's lock in a container. All containers that share a GPU must use the same
// lock, so that only one process starts at a time. If several processes started at the same time, HAMi-core could not
// find its own process among the processes of the GPU.
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
		out.addProblem(lifecycle.Problem{
			Key: gpu.Key, Refused: true, Rule: rule,
			Reason: "gpu: the namespace may not ask for devices; the container gets the names of its GPUs in its environment only (authorization: " + rule + ")",
		})
		h.Devices = GPUByEnv
	}
	names, ok := h.names(gpu.V)
	if in.Intent.OnlyGrantedRule != "" && h.Devices != GPUByEnv && ok {
		by, refused := h.checkGranted(in, names)
		if refused != nil {
			refused.Reason = "gpu: the namespace may not ask for devices; the container gets the names of its GPUs in its environment only; " + refused.Reason
			out.addProblem(*refused)
			h.Devices = GPUByEnv
		} else {
			why.Text += by
		}
	}
	if !ok {
		out.addProblem(lifecycle.Problem{
			Key: gpu.Key, Reason: "gpu: an allocated GPU has no valid UUID in the annotation, but hooks.gpu.name is uuid; the container gets no GPU",
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

// mayShare reports whether the container may have HAMi-core's files. One of three conditions must hold: the
// authorization rules allow the files, the hook gives the container the GPU's device, or Kubernetes granted the GPU to
// the container.
func (h GPU) mayShare(in *Input, names []string, out *Output) bool {
	rule := in.Intent.LibraryGrantedRule
	if rule == "" || h.Devices != GPUByEnv {
		return true
	}
	minors := in.Intent.GPU.V.Minors
	for i, name := range names {
		if in.howGPUWasGranted(name) != "" || in.howNodeWasGranted(h.Nodes, "/dev/nvidia"+strconv.Itoa(minors[i])) != "" ||
			i < len(in.Intent.GPU.V.UUIDs) && in.howGPUWasGranted(in.Intent.GPU.V.UUIDs[i]) != "" {
			continue
		}
		p := in.unauthorizedProblem("gpu-library", intent.KoordGPUIsolation, intent.Printable(name), rule, ", and Kubernetes did not grant the GPU to the container")
		p.Then = "the container's share of the GPU is not enforced"
		out.addProblem(p)
		return false
	}
	return true
}

// checkGranted checks whether Kubernetes granted all GPUs to the container. It returns how Kubernetes granted them, or
// a problem. For device nodes it compares device numbers, not the names in the parameter names. Only the pod's
// annotation says which index or UUID has which device number, and the pod's author can write any text into the
// annotation.
func (h GPU) checkGranted(in *Input, names []string) (by string, refused *lifecycle.Problem) {
	if h.Devices == GPUByCDI {
		return in.checkGranted(in.Intent.GPU.Key, names, in.howGPUWasGranted)
	}
	var paths []string
	for _, m := range in.Intent.GPU.V.Minors {
		paths = append(paths, "/dev/nvidia"+strconv.Itoa(m))
	}
	return in.checkGranted(in.Intent.GPU.Key, paths, func(path string) string { return in.howNodeWasGranted(h.Nodes, path) })
}

// names returns the names of GPUs for the runtime and for CDI: their indexes or UUIDs. It returns false if the names
// must be UUIDs, but the UUID of a GPU is not known.
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

// addShare sets the container's limits on a shared GPU, and mounts the HAMi-core library, which enforces the limits.
func (h GPU) addShare(in *Input, names []string, why lifecycle.Reason, out *Output) {
	share := in.Intent.GPU.V.Share
	without := ""
	switch {
	case h.HAMiLibrary == "":
		without = "hooks.gpu.hamiLibrary is not configured"
	case !h.mayShare(in, names, out):
		return
	case h.HAMiLock == "":
		without = "there is no directory for HAMi-core's lock: " + cmp.Or(h.NoLockReason, "hooks.gpu.hamiLock is not configured")
	}
	if without != "" {
		out.addProblem(lifecycle.Problem{
			Key: intent.KoordGPUIsolation, Value: "HAMi-core", Reason: without + "; the container's share of the GPU is not enforced",
		})
		return
	}
	why.Text = "the container's share of a GPU"
	out.setEnv("CUDA_DEVICE_MEMORY_LIMIT", strconv.FormatInt(share.Memory, 10), why)
	if share.Core > 0 {
		out.setEnv("CUDA_DEVICE_SM_LIMIT", strconv.FormatInt(share.Core, 10), why)
	}
	out.setEnv("LD_PRELOAD", h.HAMiLibrary, why)
	out.addMount(h.HAMiLibrary, h.HAMiLibrary, readOnly, why)
	out.addMount(vgpuLockDir, h.HAMiLock, readWrite, why)
}
