package hook

import (
	"path"
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// GPU tells a pod's containers which GPUs a scheduler allocated to it, and the
// HAMi-core library its part of a shared one. Names and values: Koordinator
// 1.7, plugin GPUEnvInject.
type GPU struct {
	// HAMiLibrary is the host path of libvgpu.so; "" where there is none.
	HAMiLibrary string
}

// Info describes the hook.
func (GPU) Info() Info {
	return Info{
		Name:    "gpu",
		About:   "environment (and HAMi-core library) for GPUs the scheduler allocated",
		Stages:  []lifecycle.Kind{lifecycle.CreateContainer},
		Reads:   []string{intent.KoordDevices, intent.KoordGPUIsolation},
		Sets:    []lifecycle.Field{lifecycle.Env, lifecycle.MountPoint},
		Compose: "one hook per environment variable",
		Differs: []string{
			"HAMi-core's library and lock are mounted only where hooks.gpu.hamiLibrary names the library; otherwise that is reported",
			"malformed allocations are reported and the container starts without them",
		},
	}
}

// vgpuLock is the directory HAMi-core's processes synchronise over.
const vgpuLock = "/tmp/vgpulock"

// Propose sets the environment of one container.
func (h GPU) Propose(in *Input, out *Output) {
	gpu := in.Intent.GPU
	if in.Container == "" || !gpu.Said() {
		return
	}
	why := lifecycle.Reason{Hook: "gpu", Source: gpu.Key, Text: "allocated by the scheduler"}
	env := func(name, value string) {
		out.Values = append(out.Values, lifecycle.Value{Field: lifecycle.Env, Key: name, Text: value, Why: why})
	}
	minors := make([]string, len(gpu.V.Minors))
	for i, m := range gpu.V.Minors {
		minors[i] = strconv.Itoa(m)
	}
	env("NVIDIA_VISIBLE_DEVICES", strings.Join(minors, ","))
	share := gpu.V.Shared
	if share == nil {
		return
	}
	if h.HAMiLibrary == "" {
		out.Problems = append(out.Problems, lifecycle.Problem{
			Key: intent.KoordGPUIsolation, Value: "HAMi-core",
			Reason: "hooks.gpu.hamiLibrary is not configured: the container's part of the GPU is not enforced",
		})
		return
	}
	why.Text = "its part of a shared GPU"
	env("CUDA_DEVICE_MEMORY_LIMIT", strconv.FormatInt(share.Memory, 10))
	if share.Core > 0 {
		env("CUDA_DEVICE_SM_LIMIT", strconv.FormatInt(share.Core, 10))
	}
	env("LD_PRELOAD", h.HAMiLibrary)
	for _, p := range []string{path.Clean(h.HAMiLibrary), vgpuLock} {
		out.Values = append(out.Values, lifecycle.Value{
			Field: lifecycle.MountPoint, Key: p, Why: why,
			Mount: &lifecycle.Mount{Destination: p, Type: "bind", Source: p, Options: []string{"rbind"}},
		})
	}
}
