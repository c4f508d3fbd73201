package cri

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	hooks "github.com/trimtab/trimtab/api/runtime/v1alpha1"
	"github.com/trimtab/trimtab/internal/attach/carry"
	"github.com/trimtab/trimtab/internal/attach/criclient"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/statefile"
)

// convertProto copies a hook server message into a CRI message, or the reverse. Both have the same fields with the same
// numbers. If source cannot be encoded, target stays unchanged.
func convertProto[T proto.Message](source proto.Message, target T) T {
	if b, err := proto.Marshal(source); err == nil {
		_ = proto.Unmarshal(b, target)
	}
	return target
}

// containerFromHook converts a proxy's request to a container.
func containerFromHook(r *hooks.ContainerResourceHookRequest, id, pod string) *lifecycle.Container {
	c := &lifecycle.Container{
		ID: id, PodID: pod, Name: r.GetContainerMeta().GetName(), State: lifecycle.StateCreated, Annotations: maps.Clone(r.ContainerAnnotations),
	}
	for _, name := range slices.Sorted(maps.Keys(r.ContainerEnvs)) {
		c.Env = append(c.Env, name+"="+r.ContainerEnvs[name])
	}
	if res := r.ContainerResources; res != nil {
		c.Resources = resourcesFromHook(res)
		c.OOMScoreAdj = lifecycle.Some(res.OomScoreAdj)
	}
	return c
}

// resourcesFromHook converts the resources of a hook call, which must not be nil.
func resourcesFromHook(r *hooks.LinuxContainerResources) lifecycle.Resources {
	return *criclient.Resources(convertProto(r, &cri.LinuxContainerResources{}))
}

// withoutStored returns the requested resources without the values that the runtime already stores. "No limit" may be
// stored as -1 or 0, so both equal a requested -1. withoutStored also removes hugepage limits, because proxies do not
// change them.
func withoutStored(asked, stored lifecycle.Resources) lifecycle.Resources {
	changed := &cri.LinuxContainerResources{Unified: asked.Unified, MemorySwapLimitInBytes: asked.Memory.Swap.V}
	for _, f := range lifecycle.Fields() {
		want, set := asked.Value(f.Field, "")
		now, _ := stored.Value(f.Field, "")
		if set && want != now && (want.Int >= 0 || now.Int > 0) {
			criclient.Put(changed, want)
		}
	}
	return *criclient.Resources(changed)
}

// putInHookAnswer puts a value into the resources of an answer to a proxy, where 0 and an empty list mean unset. It
// returns false for a value that the answer cannot express. Proxies ignore a memory limit below 0, so the answer cannot
// remove an existing limit. The agent then writes such a value to the cgroup itself.
func putInHookAnswer(r *cri.LinuxContainerResources, v lifecycle.Value) bool {
	switch {
	case v.Field == lifecycle.OOMScoreAdj:
		r.OomScoreAdj = v.Int
		return true
	case v.Field == lifecycle.MemoryLimit && v.Int < 0:
		return r.MemoryLimitInBytes <= 0 // the answer has no limit to remove
	}
	return criclient.Put(r, v)
}

// HookAnswerCarries reports whether the answer to a proxy's call can set the field. kind is the event of this call.
func HookAnswerCarries(kind lifecycle.Kind, f lifecycle.Field) bool {
	resource := criclient.CanPut(f) || f == lifecycle.OOMScoreAdj
	switch kind {
	case lifecycle.CreateContainer:
		return resource || f == lifecycle.Env || f == lifecycle.Annotation
	case lifecycle.UpdateContainer:
		return resource && f != lifecycle.OOMScoreAdj
	}
	return false
}

// putAnswer puts values into an answer to a proxy. The answer already has the requested resources. If the request had
// no resources, putAnswer adds none: the proxy would set to zero all fields that are missing in the answer's resources.
func putAnswer(resp *hooks.ContainerResourceHookResponse, values []lifecycle.Value) (unsupported []lifecycle.Value) {
	r := convertProto(resp.ContainerResources, &cri.LinuxContainerResources{})
	for _, v := range values {
		switch {
		case v.Scope != lifecycle.OfContainer:
		case v.Field == lifecycle.Annotation && carry.SetPair(&resp.ContainerAnnotations, v):
			continue
		case v.Field == lifecycle.Env && v.Remove:
			delete(resp.ContainerEnvs, v.Key)
			continue
		case v.Field == lifecycle.Env && carry.SetPair(&resp.ContainerEnvs, v):
			continue
		case resp.ContainerResources != nil && putInHookAnswer(r, v):
			continue
		}
		unsupported = append(unsupported, v)
	}
	if resp.ContainerResources != nil {
		convertProto(r, resp.ContainerResources)
	}
	return unsupported
}

// RegisterHookService writes the file by which proxies find the hook service. It replaces the file atomically, and only
// if the content differs.
func RegisterHookService(s HookService, failClosed bool) error {
	file := s.RegistrationFile
	policy := "Ignore"
	if failClosed {
		policy = "Fail"
	}
	stages := slices.DeleteFunc([]string{
		"PreRunPodSandbox", "PreCreateContainer", "PreStartContainer", "PostStartContainer",
		"PreUpdateContainerResources", "PostStopContainer", "PostStopPodSandbox",
	}, func(stage string) bool { return slices.Contains(s.OmittedStages, stage) })
	text, err := json.MarshalIndent(struct {
		Endpoint string   `json:"remote-endpoint"`
		Policy   string   `json:"failure-policy"`
		Stages   []string `json:"runtime-hooks"`
	}{s.Socket, policy, stages}, "", "\t")
	if err != nil {
		return err
	}
	text = append(text, '\n')
	if have, err := os.ReadFile(file); err == nil && bytes.Equal(have, text) {
		return nil
	}
	dir := filepath.Dir(file)
	if err := statefile.New(statefile.SharedDisk(dir), dir).WriteShared(filepath.Base(file), text); err != nil {
		return fmt.Errorf("register the hook service with proxies: %w", err)
	}
	return nil
}
