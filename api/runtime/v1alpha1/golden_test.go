package runtimev1alpha1

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// row is one field of a message in the protocol's tables, with a value in wire form.
type row struct {
	number protowire.Number
	name   string
	kind   string // string, int64, uint32, uint64, map, message or messages
	text   string
	n      int64
	of     string // the message's name
}

// tables are the messages of the protocol (koordinator a7a1b76b, 2026-07-24), copied from its documentation
// and not from our .proto file. The numbers are those that a careless encoder gets wrong: negative, or
// above 32 bits.
var tables = map[string][]row{
	"PodSandboxMetadata": {
		{1, "name", "string", "web-0", 0, ""}, {2, "uid", "string", "6d0c", 0, ""},
		{3, "namespace", "string", "shop", 0, ""}, {4, "attempt", "uint32", "", 3, ""},
	},
	"PodSandboxHookRequest": {
		{1, "pod_meta", "message", "", 0, "PodSandboxMetadata"}, {2, "runtime_handler", "string", "kata", 0, ""},
		{3, "labels", "map", "", 0, ""}, {4, "annotations", "map", "", 0, ""},
		{5, "cgroup_parent", "string", "/kubepods/burstable/pod6d0c", 0, ""},
		{6, "overhead", "message", "", 0, "LinuxContainerResources"}, {7, "resources", "message", "", 0, "LinuxContainerResources"},
	},
	"PodSandboxHookResponse": {
		{1, "labels", "map", "", 0, ""}, {2, "annotations", "map", "", 0, ""}, {3, "cgroup_parent", "string", "/other", 0, ""},
		{4, "resources", "message", "", 0, "LinuxContainerResources"},
	},
	"LinuxContainerResources": {
		{1, "cpu_period", "int64", "", 100000, ""}, {2, "cpu_quota", "int64", "", -1, ""}, {3, "cpu_shares", "int64", "", 1024, ""},
		{4, "memory_limit_in_bytes", "int64", "", 1 << 40, ""}, {5, "oom_score_adj", "int64", "", -997, ""},
		{6, "cpuset_cpus", "string", "0-3,8", 0, ""}, {7, "cpuset_mems", "string", "0", 0, ""},
		{8, "hugepage_limits", "messages", "", 0, "HugepageLimit"}, {9, "unified", "map", "", 0, ""},
		{10, "memory_swap_limit_in_bytes", "int64", "", 1 << 41, ""},
	},
	"HugepageLimit":     {{1, "page_size", "string", "2MB", 0, ""}, {2, "limit", "uint64", "", -1, ""}},
	"ContainerMetadata": {{1, "name", "string", "app", 0, ""}, {2, "attempt", "uint32", "", 7, ""}, {3, "id", "string", "abc", 0, ""}},
	"ContainerResourceHookRequest": {
		{1, "pod_meta", "message", "", 0, "PodSandboxMetadata"}, {2, "container_meta", "message", "", 0, "ContainerMetadata"},
		{3, "container_annotations", "map", "", 0, ""}, {4, "container_resources", "message", "", 0, "LinuxContainerResources"},
		{5, "pod_resources", "message", "", 0, "LinuxContainerResources"}, {6, "pod_annotations", "map", "", 0, ""},
		{7, "pod_labels", "map", "", 0, ""}, {8, "pod_cgroup_parent", "string", "/kubepods/pod1", 0, ""}, {9, "container_envs", "map", "", 0, ""},
	},
	"ContainerResourceHookResponse": {
		{1, "container_annotations", "map", "", 0, ""}, {2, "container_resources", "message", "", 0, "LinuxContainerResources"},
		{3, "pod_cgroup_parent", "string", "/kubepods/pod1", 0, ""}, {4, "container_envs", "map", "", 0, ""},
	},
}

// pairs returns the entries of every map, sorted as deterministic encoders sort them.
var pairs = [][2]string{{"a", "1"}, {"b=c", ""}, {"trimtab.io/x", "y"}}

// wire builds a message byte by byte.
func wire(message string) []byte {
	var b []byte
	for _, r := range tables[message] {
		switch r.kind {
		case "string":
			b = protowire.AppendString(protowire.AppendTag(b, r.number, protowire.BytesType), r.text)
		case "int64", "uint32", "uint64":
			b = protowire.AppendVarint(protowire.AppendTag(b, r.number, protowire.VarintType), uint64(r.n))
		case "map":
			for _, p := range pairs {
				entry := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), p[0])
				entry = protowire.AppendString(protowire.AppendTag(entry, 2, protowire.BytesType), p[1])
				b = protowire.AppendBytes(protowire.AppendTag(b, r.number, protowire.BytesType), entry)
			}
		case "message":
			b = protowire.AppendBytes(protowire.AppendTag(b, r.number, protowire.BytesType), wire(r.of))
		case "messages":
			for range 2 {
				b = protowire.AppendBytes(protowire.AppendTag(b, r.number, protowire.BytesType), wire(r.of))
			}
		}
	}
	return b
}

// build fills one of our messages, by the names of its fields.
func build(t *testing.T, m protoreflect.Message) {
	t.Helper()
	for _, r := range tables[string(m.Descriptor().Name())] {
		f := m.Descriptor().Fields().ByName(protoreflect.Name(r.name))
		if f == nil {
			t.Fatalf("%s has no %s", m.Descriptor().Name(), r.name)
		}
		switch r.kind {
		case "string":
			m.Set(f, protoreflect.ValueOfString(r.text))
		case "int64":
			m.Set(f, protoreflect.ValueOfInt64(r.n))
		case "uint32":
			m.Set(f, protoreflect.ValueOfUint32(uint32(r.n)))
		case "uint64":
			m.Set(f, protoreflect.ValueOfUint64(uint64(r.n)))
		case "map":
			for _, p := range pairs {
				m.Mutable(f).Map().Set(protoreflect.ValueOfString(p[0]).MapKey(), protoreflect.ValueOfString(p[1]))
			}
		case "message":
			build(t, m.Mutable(f).Message())
		case "messages":
			for range 2 {
				build(t, m.Mutable(f).List().AppendMutable().Message())
			}
		}
	}
}

// TestGoldenBytes encodes and decodes every message, and compares it with bytes that are built from the
// tables.
func TestGoldenBytes(t *testing.T) {
	messages := File_runtime_v1alpha1_hooks_proto.Messages()
	if messages.Len() != len(tables) {
		t.Errorf("%d messages, the tables have %d", messages.Len(), len(tables))
	}
	for name, rows := range tables {
		t.Run(name, func(t *testing.T) {
			d := messages.ByName(protoreflect.Name(name))
			if d == nil || d.Fields().Len() != len(rows) {
				t.Fatalf("missing, or with other fields than the table's %d", len(rows))
			}
			if full := "runtime.v1alpha1." + name; string(d.FullName()) != full {
				t.Errorf("is %s, not %s", d.FullName(), full)
			}
			made := newMessage(t, name)
			build(t, made.ProtoReflect())
			golden := wire(name)
			out, err := proto.MarshalOptions{Deterministic: true}.Marshal(made)
			if err != nil || !bytes.Equal(out, golden) {
				t.Errorf("out: %v\n got %x\nwant %x", err, out, golden)
			}
			in := newMessage(t, name)
			if err := proto.Unmarshal(golden, in); err != nil || !proto.Equal(in, made) || len(in.ProtoReflect().GetUnknown()) > 0 {
				t.Errorf("in: %v\n got %v\nwant %v", err, in, made)
			}
		})
	}
}

func newMessage(t *testing.T, name string) proto.Message {
	t.Helper()
	for _, m := range []proto.Message{
		&PodSandboxMetadata{}, &PodSandboxHookRequest{}, &PodSandboxHookResponse{}, &LinuxContainerResources{}, &HugepageLimit{},
		&ContainerMetadata{}, &ContainerResourceHookRequest{}, &ContainerResourceHookResponse{},
	} {
		if string(m.ProtoReflect().Descriptor().Name()) == name {
			return m
		}
	}
	t.Fatalf("no message %s", name)
	return nil
}

// TestCalls compares the service's calls with the tables.
func TestCalls(t *testing.T) {
	const pod, container = "PodSandboxHook", "ContainerResourceHook"
	want := map[string]string{
		"PreRunPodSandboxHook": pod, "PostStopPodSandboxHook": pod, "PreCreateContainerHook": container, "PreStartContainerHook": container,
		"PostStartContainerHook": container, "PostStopContainerHook": container, "PreUpdateContainerResourcesHook": container,
	}
	s := File_runtime_v1alpha1_hooks_proto.Services().ByName("RuntimeHookService")
	if s == nil || s.FullName() != "runtime.v1alpha1.RuntimeHookService" || s.Methods().Len() != len(want) {
		t.Fatalf("the service is %v", s)
	}
	for i := range s.Methods().Len() {
		m := s.Methods().Get(i)
		pair, ok := want[string(m.Name())]
		if !ok || string(m.Input().Name()) != pair+"Request" || string(m.Output().Name()) != pair+"Response" || m.IsStreamingClient() || m.IsStreamingServer() {
			t.Errorf("%s(%s) returns %s", m.Name(), m.Input().Name(), m.Output().Name())
		}
	}
	if RuntimeHookService_PreCreateContainerHook_FullMethodName != "/runtime.v1alpha1.RuntimeHookService/PreCreateContainerHook" {
		t.Error(RuntimeHookService_PreCreateContainerHook_FullMethodName)
	}
}
