package qrm

import (
	"maps"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	api "github.com/trimtab/trimtab/api/resourceplugin/v1alpha1"
	"github.com/trimtab/trimtab/test/clock"
)

// entry returns a map entry of resource_hints in wire form; nil for no value.
func entry(key string, value []byte) []byte {
	in := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), key)
	if value != nil {
		in = protowire.AppendBytes(protowire.AppendTag(in, 2, protowire.BytesType), value)
	}
	return protowire.AppendBytes(protowire.AppendTag(nil, 10, protowire.BytesType), in)
}

// TestWithoutValue: an entry with only a key differs from one with an empty message.
func TestWithoutValue(t *testing.T) {
	list, err := proto.Marshal(&api.ListOfTopologyHints{Hints: []*api.TopologyHint{{Nodes: []uint64{1}}}})
	if err != nil {
		t.Fatal(err)
	}
	message := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "uid")
	message = append(message, entry("any", nil)...)
	message = append(message, entry("none", []byte{})...)
	message = append(message, entry("some", list)...)
	message = append(message, entry("later", nil)...)
	message = append(message, entry("later", list)...)
	got := slices.Sorted(maps.Keys(keysWithoutValue(message, 10)))
	if !slices.Equal(got, []string{"any"}) {
		t.Errorf("without a value: %q", got)
	}
	var decoded api.ResourceHintsResponse
	if err := proto.Unmarshal(message, &decoded); err != nil || len(decoded.GetResourceHints()) != 4 {
		t.Errorf("%v, %v", &decoded, err)
	}
}

func FuzzWithoutValue(f *testing.F) {
	f.Add(entry("a", nil))
	f.Add(append(entry("a", []byte{}), 0xff))
	f.Fuzz(func(t *testing.T, data []byte) {
		defer clock.Watch(t, len(data))()
		free := keysWithoutValue(data, 10)
		var decoded api.ResourceHintsResponse
		if proto.Unmarshal(data, &decoded) != nil {
			return
		}
		for key := range free {
			list, has := decoded.GetResourceHints()[key]
			if !has || len(list.GetHints()) > 0 {
				t.Errorf("%q has a value or is not there: %v", key, list)
			}
		}
	})
}

// FuzzCheckpoint: no checkpoint of an earlier manager ends the agent.
func FuzzCheckpoint(f *testing.F) {
	f.Add([]byte(`{"Data":{"PodResourceEntries":[{"PodUID":"u","ContainerName":"c","ResourceName":"cpu","AllocationInfo":"{\"allocated_quantity\":1}"}]},"Checksum":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		defer clock.Watch(t, len(data))()
		pods, _, err := parseCheckpoint(data)
		for uid, p := range pods {
			if uid == "" || len(p.answers) == 0 || err != nil {
				t.Errorf("pod %q: %+v, %v", uid, p, err)
			}
		}
	})
}
