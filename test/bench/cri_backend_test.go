package bench

import (
	"encoding/json"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// backend is a fast CRI runtime in memory, with answers that are encoded in advance.
type backend struct {
	path string

	mu    sync.Mutex
	list  []byte            // the existing containers
	fixed map[string][]byte // constant answers, by method
	next  int
	made  map[string][]byte // containers created during the benchmark, as listed, by id
}

// openBackend serves n containers in as many pods, and further pods in which to create.
func openBackend(b *testing.B, n int, more ...*unit) *backend {
	b.Helper()
	k := &backend{path: filepath.Join(b.TempDir(), "b"), fixed: map[string][]byte{}, made: map[string][]byte{}}
	all := population(n)
	var pods cri.ListPodSandboxResponse
	var ctrs cri.ListContainersResponse
	for _, u := range append(all, more...) {
		pods.Items = append(pods.Items, &cri.PodSandbox{
			Id: u.pod.Id, State: cri.PodSandboxState_SANDBOX_READY, Labels: u.pod.Labels, Annotations: u.pod.Annotations,
			Metadata: &cri.PodSandboxMetadata{Name: u.pod.Name, Uid: u.pod.Uid, Namespace: u.pod.Namespace},
		})
		k.fixed["PodSandboxStatus "+u.pod.Id] = encode(&cri.PodSandboxStatusResponse{Info: info(map[string]any{
			"pid": 1, "config": map[string]any{"linux": map[string]any{"cgroup_parent": u.pod.Linux.CgroupParent}},
		})})
	}
	for _, u := range all {
		ctrs.Containers = append(ctrs.Containers, listed(u, u.ctr.Id, cri.ContainerState_CONTAINER_RUNNING))
		k.fixed["ContainerStatus "+u.ctr.Id] = statusOf(u, u.ctr.Id, cri.ContainerState_CONTAINER_RUNNING)
	}
	k.list = encode(&ctrs)
	k.fixed["ListPodSandbox"] = encode(&pods)
	k.fixed["Version"] = encode(&cri.VersionResponse{Version: "0.1.0", RuntimeName: "containerd", RuntimeVersion: "2.4.2", RuntimeApiVersion: "v1"})
	l, err := net.Listen("unix", k.path)
	if err != nil {
		b.Fatal(err)
	}
	srv := grpc.NewServer(grpc.ForceServerCodec(raw{}), grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error { return k.handle(s) }))
	go func() { _ = srv.Serve(l) }()
	b.Cleanup(srv.Stop)
	return k
}

// encode encodes a message, which cannot fail.
func encode(m proto.Message) []byte {
	out, err := proto.Marshal(m)
	if err != nil {
		panic(err)
	}
	return out
}

func info(v map[string]any) map[string]string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return map[string]string{"info": string(text)}
}

// listed is a container as lists show it, with the kubelet's annotations.
func listed(u *unit, id string, state cri.ContainerState) *cri.Container {
	return &cri.Container{
		Id: id, PodSandboxId: u.pod.Id, Metadata: &cri.ContainerMetadata{Name: "app"}, State: state, CreatedAt: time.Now().UnixNano(),
		Image: &cri.ImageSpec{Image: "registry.example/team/app:1.42.0"}, ImageRef: "sha256:" + strings.Repeat("a", 64), Labels: u.ctr.Labels,
		Annotations: map[string]string{
			"io.kubernetes.container.hash": "8a9b0c1d", "io.kubernetes.container.restartCount": "0",
			"io.kubernetes.container.terminationMessagePath": "/dev/termination-log", "io.kubernetes.pod.terminationGracePeriod": "30",
		},
	}
}

// statusOf returns a verbose status with the OCI spec.
func statusOf(u *unit, id string, state cri.ContainerState) []byte {
	c := listed(u, id, state)
	path := u.ctr.Linux.CgroupsPath
	path = path[:strings.LastIndexByte(path, ':')+1] + id
	return encode(&cri.ContainerStatusResponse{
		Status: &cri.ContainerStatus{Id: id, Metadata: c.Metadata, State: state, Labels: c.Labels, Annotations: c.Annotations, CreatedAt: c.CreatedAt},
		Info: info(map[string]any{"sandboxID": u.pod.Id, "runtimeSpec": map[string]any{
			"process": map[string]any{"args": u.ctr.Args, "env": u.ctr.Env},
			"linux":   map[string]any{"cgroupsPath": path, "resources": map[string]any{"cpu": map[string]any{"shares": 2}}},
		}}),
	})
}

func (k *backend) handle(s grpc.ServerStream) error {
	path, _ := grpc.MethodFromServerStream(s)
	var m []byte
	if err := s.RecvMsg(&m); err != nil {
		return err
	}
	answer, err := k.answer(path[strings.LastIndexByte(path, '/')+1:], m)
	if err != nil {
		return err
	}
	return s.SendMsg(&answer)
}

func (k *backend) answer(method string, m []byte) ([]byte, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch method {
	case "ListContainers": // encoded lists can be concatenated
		out := k.list
		for _, more := range k.made {
			out = append(out[:len(out):len(out)], more...)
		}
		return out, nil
	case "CreateContainer":
		return k.create(m)
	case "RemoveContainer":
		var q cri.RemoveContainerRequest
		if err := proto.Unmarshal(m, &q); err != nil {
			return nil, err
		}
		delete(k.made, q.ContainerId)
		delete(k.fixed, "ContainerStatus "+q.ContainerId)
		return nil, nil
	case "ContainerStatus", "PodSandboxStatus": // both have their id in field 1
		var q cri.ContainerStatusRequest
		if err := proto.Unmarshal(m, &q); err != nil {
			return nil, err
		}
		method += " " + q.ContainerId
	}
	out, ok := k.fixed[method]
	if !ok {
		return nil, status.Errorf(codes.NotFound, "unknown id %s", method)
	}
	return out, nil
}

// create makes a container, which lists show from then on.
func (k *backend) create(m []byte) ([]byte, error) {
	var q cri.CreateContainerRequest
	if err := proto.Unmarshal(m, &q); err != nil {
		return nil, err
	}
	k.next++
	id := fmt.Sprintf("f%063x", k.next)
	u := newUnit(k.next, batch, 0)
	u.pod.Id = q.PodSandboxId
	u.ctr.Linux.CgroupsPath = filepath.Base(q.GetSandboxConfig().GetLinux().GetCgroupParent()) + ":cri-containerd:" + id
	k.made[id] = encode(&cri.ListContainersResponse{Containers: []*cri.Container{listed(u, id, cri.ContainerState_CONTAINER_CREATED)}})
	k.fixed["ContainerStatus "+id] = statusOf(u, id, cri.ContainerState_CONTAINER_CREATED)
	return proto.Marshal(&cri.CreateContainerResponse{ContainerId: id})
}

// creation is a kubelet's request for an ordinary container of a pod.
func creation(u *unit) *cri.CreateContainerRequest {
	q := &cri.CreateContainerRequest{
		PodSandboxId: u.pod.Id,
		Config: &cri.ContainerConfig{
			Metadata: &cri.ContainerMetadata{Name: "app"}, Image: &cri.ImageSpec{Image: "registry.example/team/app:1.42.0"}, Command: u.ctr.Args,
			Labels: u.ctr.Labels, LogPath: "app/0.log", Annotations: listed(u, "", 0).Annotations,
			Linux: &cri.LinuxContainerConfig{
				Resources:       &cri.LinuxContainerResources{CpuShares: 2, CpuPeriod: 100_000, OomScoreAdj: 1000},
				SecurityContext: &cri.LinuxContainerSecurityContext{RunAsUser: &cri.Int64Value{Value: 1000}},
			},
		},
		SandboxConfig: &cri.PodSandboxConfig{
			Metadata: &cri.PodSandboxMetadata{Name: u.pod.Name, Uid: u.pod.Uid, Namespace: u.pod.Namespace},
			Labels:   u.pod.Labels, Annotations: u.pod.Annotations, Linux: &cri.LinuxPodSandboxConfig{CgroupParent: u.pod.Linux.CgroupParent},
		},
	}
	for _, e := range u.ctr.Env {
		name, value, _ := strings.Cut(e, "=")
		q.Config.Envs = append(q.Config.Envs, &cri.KeyValue{Key: name, Value: []byte(value)})
	}
	for _, m := range u.ctr.Mounts {
		q.Config.Mounts = append(q.Config.Mounts, &cri.Mount{ContainerPath: m.Destination, HostPath: m.Source, Readonly: true})
	}
	return q
}
