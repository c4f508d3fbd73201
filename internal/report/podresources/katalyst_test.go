package podresources_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/nodeview"
	"github.com/trimtab/trimtab/internal/report/podresources"
)

// katalystFields are the messages of Katalyst's PodResources API with the fields that it adds, and names.
const katalystFields = `{"name": "katalyst.proto", "package": "k", "syntax": "proto3", "messageType": [
 {"name": "List", "field": [{"name": "pods", "number": 1, "label": "LABEL_REPEATED", "type": "TYPE_MESSAGE", "typeName": ".k.Pod"}]},
 {"name": "Pod", "field": [
  {"name": "name", "number": 1, "type": "TYPE_STRING"},
  {"name": "containers", "number": 3, "label": "LABEL_REPEATED", "type": "TYPE_MESSAGE", "typeName": ".k.Container"},
  {"name": "pod_role", "number": 12, "type": "TYPE_STRING"}, {"name": "pod_type", "number": 13, "type": "TYPE_STRING"},
  {"name": "labels", "number": 14, "label": "LABEL_REPEATED", "type": "TYPE_MESSAGE", "typeName": ".k.Entry"},
  {"name": "annotations", "number": 15, "label": "LABEL_REPEATED", "type": "TYPE_MESSAGE", "typeName": ".k.Entry"}]},
 {"name": "Entry", "field": [{"name": "key", "number": 1, "type": "TYPE_STRING"}, {"name": "value", "number": 2, "type": "TYPE_STRING"}]},
 {"name": "Container", "field": [
  {"name": "name", "number": 1, "type": "TYPE_STRING"},
  {"name": "resources", "number": 15, "label": "LABEL_REPEATED", "type": "TYPE_MESSAGE", "typeName": ".k.Resource"}]},
 {"name": "Resource", "field": [
  {"name": "resource_name", "number": 1, "type": "TYPE_STRING"}, {"name": "is_node_resource", "number": 2, "type": "TYPE_BOOL"},
  {"name": "is_scalar_resource", "number": 3, "type": "TYPE_BOOL"}, {"name": "aggregated_quantity", "number": 4, "type": "TYPE_DOUBLE"},
  {"name": "original_aggregated_quantity", "number": 5, "type": "TYPE_DOUBLE"},
  {"name": "list", "number": 6, "label": "LABEL_REPEATED", "type": "TYPE_MESSAGE", "typeName": ".k.Quantity"},
  {"name": "original_list", "number": 7, "label": "LABEL_REPEATED", "type": "TYPE_MESSAGE", "typeName": ".k.Quantity"}]},
 {"name": "Allocatable", "field": [{"name": "resources", "number": 15, "label": "LABEL_REPEATED", "type": "TYPE_MESSAGE", "typeName": ".k.AllocatableResource"}]},
 {"name": "AllocatableResource", "field": [
  {"name": "resource_name", "number": 1, "type": "TYPE_STRING"}, {"name": "aggregated_allocatable_quantity", "number": 4, "type": "TYPE_DOUBLE"},
  {"name": "list", "number": 5, "label": "LABEL_REPEATED", "type": "TYPE_MESSAGE", "typeName": ".k.Quantity"},
  {"name": "aggregated_capacity_quantity", "number": 6, "type": "TYPE_DOUBLE"},
  {"name": "capacity_list", "number": 7, "label": "LABEL_REPEATED", "type": "TYPE_MESSAGE", "typeName": ".k.Quantity"}]},
 {"name": "Quantity", "field": [
  {"name": "resource_value", "number": 1, "type": "TYPE_DOUBLE"}, {"name": "node", "number": 2, "type": "TYPE_UINT64"},
  {"name": "name", "number": 3, "type": "TYPE_STRING"}, {"name": "type", "number": 4, "type": "TYPE_STRING"},
  {"name": "topology_level", "number": 5, "type": "TYPE_INT32"}]}
]}`

// asKatalyst reads a message as a client of Katalyst's API does.
func asKatalyst(t *testing.T, m proto.Message, name protoreflect.Name) string {
	t.Helper()
	var fields descriptorpb.FileDescriptorProto
	if err := protojson.Unmarshal([]byte(katalystFields), &fields); err != nil {
		t.Fatal(err)
	}
	file, err := protodesc.NewFile(&fields, nil)
	if err != nil {
		t.Fatal(err)
	}
	wire, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	out := dynamicpb.NewMessage(file.Messages().ByName(name))
	if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(wire, out); err != nil {
		t.Fatal(err)
	}
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// nics is a resource plugin with interfaces.
type nics struct{}

func (nics) Amounts(podUID string) map[string][]lifecycle.PluginAmount {
	if podUID != "u" {
		return nil
	}
	at := []lifecycle.PluginQuantity{{Value: 2, Node: 1, Name: "eth1", Type: "NIC"}}
	return map[string][]lifecycle.PluginAmount{"c": {{Resource: "net", IsScalarResource: true, Total: 2, OtherTotal: 2, ByNode: at, OtherByNode: at}}}
}

func (nics) Allocatable(context.Context) []lifecycle.PluginAmount {
	return []lifecycle.PluginAmount{{Resource: "net", Total: 8, OtherTotal: 10, ByNode: []lifecycle.PluginQuantity{{Value: 8, Node: 1}}, OtherByNode: []lifecycle.PluginQuantity{{Value: 10, Node: 1, Socket: true}}}}
}

// TestKatalystFields: a client of Katalyst's API finds its fields, and one of the kubelet's API the usual ones.
func TestKatalystFields(t *testing.T) {
	t.Parallel()
	node := func() nodeview.Holdings {
		return nodeview.Holdings{Synced: true, CPUs: []int{0, 1, 2}, Pods: []nodeview.PodHoldings{{
			Namespace: "d", Name: "p", UID: "u", Labels: map[string]string{"a": "b", "katalyst.kubewharf.io/pod_role": "worker"},
			Annotations: map[string]string{"katalyst.kubewharf.io/pod_type": "batch"},
			Containers: []nodeview.ContainerHoldings{
				{Name: "c", Listed: true, CPUs: []int{1, 2, 5}, CPUNodes: []int{0, 0, 1}, Memory: []nodeview.MemoryHolding{{Type: "memory", Node: 1, Bytes: 64}}},
				{Name: "plain", Listed: true},
			},
		}}}
	}
	path := filepath.Join(t.TempDir(), "kubelet.sock")
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- podresources.New(node, nil, nics{}, slog.New(slog.DiscardHandler)).Serve(ctx, path) }()
	t.Cleanup(func() { stop(); <-done })
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	client := v1.NewPodResourcesListerClient(conn)
	list, err := client.List(t.Context(), &v1.ListPodResourcesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	const quantity = `[{"resource_value":2, "node":"1", "name":"eth1", "type":"NIC"}]`
	const want = `{"pods":[{"name":"p", "containers":[{"name":"c", "resources":[` +
		`{"resource_name":"net", "is_scalar_resource":true, "aggregated_quantity":2, "original_aggregated_quantity":2, "list":` + quantity + `, "original_list":` + quantity + `}, ` +
		`{"resource_name":"cpu", "is_node_resource":true, "is_scalar_resource":true, "aggregated_quantity":3, "original_aggregated_quantity":3, ` +
		`"list":[{"resource_value":2}, {"resource_value":1, "node":"1"}], "original_list":[{"resource_value":2}, {"resource_value":1, "node":"1"}]}, ` +
		`{"resource_name":"memory", "is_node_resource":true, "is_scalar_resource":true, "aggregated_quantity":64, "original_aggregated_quantity":64, ` +
		`"list":[{"resource_value":64, "node":"1"}], "original_list":[{"resource_value":64, "node":"1"}]}]}, {"name":"plain"}], ` +
		`"pod_role":"worker", "pod_type":"batch", "labels":[{"key":"a", "value":"b"}, {"key":"katalyst.kubewharf.io/pod_role", "value":"worker"}], ` +
		`"annotations":[{"key":"katalyst.kubewharf.io/pod_type", "value":"batch"}]}]}`
	sameJSON(t, want, asKatalyst(t, list, "List"))
	if ids := list.GetPodResources()[0].GetContainers()[0].GetCpuIds(); !cmp.Equal(ids, []int64{1, 2, 5}) {
		t.Errorf("CPUs %v", ids)
	}
	all, err := client.GetAllocatableResources(t.Context(), &v1.AllocatableResourcesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	sameJSON(t, `{"resources":[{"resource_name":"net", "aggregated_allocatable_quantity":8, "list":[{"resource_value":8, "node":"1"}], `+
		`"aggregated_capacity_quantity":10, "capacity_list":[{"resource_value":10, "node":"1", "topology_level":1}]}]}`, asKatalyst(t, all, "Allocatable"))
}

// sameJSON compares two texts without regard to blanks, which the library varies.
func sameJSON(t *testing.T, want, got string) {
	t.Helper()
	if diff := cmp.Diff(decoded(t, want), decoded(t, got)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func decoded(t *testing.T, text string) (out any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}
