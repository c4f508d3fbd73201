package vm

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestParseTopology(t *testing.T) {
	got, err := ParseTopology("2s x 2n x 4c, 64GiB/node")
	if err != nil || got.CPUs() != 16 || got.Sockets != 2 || got.Dies != 2 || len(got.Nodes) != 4 || got.Nodes[3].CPUs != "12-15" {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, text := range []string{"1s x 2c x 2t", "2s x 3c"} {
		if _, err := ParseTopology(text); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, bad := range []string{"", "2q", "0c", "x"} {
		if _, err := ParseTopology(bad); err == nil {
			t.Errorf("%q is taken for a shape", bad)
		}
	}
}

func TestShapeWithMemory(t *testing.T) {
	plain, err := ParseTopology("2s x 4c")
	if err != nil {
		t.Fatal(err)
	}
	shape, err := plain.WithMemory([]int{512, 512, 256}, [][]int{{10, 21, 15}, {21, 10, 35}, {15, 35, 10}})
	if err != nil || shape.Name == plain.Name || len(plain.Nodes) != 2 {
		t.Errorf("%+v (%v), of %+v", shape, err, plain)
	}
	got := strings.Join(shape.args(), " ") + " "
	for _, want := range []string{"-m 1280M", "node,nodeid=1,memdev=m1,cpus=4-7 ", "size=256M", "node,nodeid=2,memdev=m2 ", "dist,src=1,dst=2,val=35 "} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %s", want, got)
		}
	}
	if _, err := plain.WithMemory([]int{4096, 4096}, nil); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("8 GiB: %v", err)
	}
}

func TestTopologyArguments(t *testing.T) {
	got := strings.Join(FarMemory.args(), " ")
	for _, want := range []string{"-smp 4,sockets=1", "-m 2048M", "node,nodeid=0,memdev=m0,cpus=0-3", "node,nodeid=1,memdev=m1 ", "dist,src=0,dst=1,val=17"} {
		if !strings.Contains(got+" ", want) {
			t.Errorf("no %q in %s", want, got)
		}
	}
}

func TestModulesInOrder(t *testing.T) {
	deps := "k/net.ko: k/failover.ko k/ring.ko k/virtio.ko\nk/failover.ko:\nk/ring.ko: k/virtio.ko\nk/virtio.ko:\nk/virtio-rng.ko.xz: k/ring.ko k/virtio.ko\n"
	got := moduleFiles(deps, []string{"net", "virtio_rng", "built_in"})
	want := []string{"k/virtio.ko", "k/ring.ko", "k/failover.ko", "k/net.ko", "k/virtio-rng.ko.xz"}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestTreeHash(t *testing.T) {
	one, other := tree{}, tree{}
	one.addText("/a", "1")
	other.addText("/a", "2")
	a, errA := one.hash()
	b, errB := other.hash()
	if errA != nil || errB != nil || a == b {
		t.Errorf("%s, %s (%v, %v): another content is another hash", a, b, errA, errB)
	}
	var archive bytes.Buffer
	if err := one.writeCPIO(&archive); err != nil || archive.Len()%4 != 0 || !bytes.Contains(archive.Bytes(), []byte("TRAILER!!!")) {
		t.Errorf("archive of %d bytes: %v", archive.Len(), err)
	}
}
