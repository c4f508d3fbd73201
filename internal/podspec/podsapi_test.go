package podspec

import (
	"context"
	"encoding/pem"
	"errors"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	pods "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/test/clock"
)

func pemOf(der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// encoded concatenates fields: numbers and their bytes.
func encoded(fields ...any) []byte {
	var b []byte
	for i := 0; i < len(fields); i += 2 {
		n, _ := fields[i].(int)
		b = protowire.AppendTag(b, protowire.Number(n), protowire.BytesType)
		switch v := fields[i+1].(type) {
		case string:
			b = protowire.AppendString(b, v)
		case []byte:
			b = protowire.AppendBytes(b, v)
		}
	}
	return b
}

func entryOf(name, quantity string) []byte { return encoded(1, name, 2, encoded(1, quantity)) }

// webPod is webSpec as a v1.Pod in protobuf form, built by field number.
func webPod() []byte {
	text := func(key, value string) []byte { return encoded(1, key, 2, value) }
	meta := encoded(1, "web", 3, "shop", 5, "u1", 11, text("a", "b"), 11, text("volcano.sh/preemptable", "true"),
		12, text("volcano.sh/quota-burst-time", "2000"))
	proxy := encoded(1, "proxy", 2, "image", 8, encoded(2, entryOf("cpu", "100m")), 24, "Always")
	setup := encoded(1, "setup", 8, encoded(1, entryOf("cpu", "1500m"), 1, entryOf("memory", "1Gi")))
	app := encoded(1, "app", 8, encoded(1, entryOf("memory", "512Mi"), 2, entryOf("cpu", "2"), 2, entryOf("kubernetes.io/batch-cpu", "4k")))
	spec := encoded(2, app, 10, "node1", 20, proxy, 20, setup, 32, entryOf("cpu", "250m"), 32, entryOf("memory", "128Mi"),
		34, encoded(1, encoded(1, "debug")), 40, encoded(1, entryOf("memory", "2G"), 2, entryOf("cpu", "3")))
	return encoded(1, meta, 2, spec, 3, encoded(9, "Burstable"))
}

func TestDecodePod(t *testing.T) {
	got, _, _, err := decodePod(webPod())
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(webSpec(lifecycle.FromPodsAPI), got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	whole := webPod()
	for cut := range len(whole) {
		if s, _, _, err := decodePod(whole[:cut]); err == nil && s.UID != "u1" {
			t.Errorf("cut at %d: %+v", cut, s)
		}
	}
}

func FuzzDecodePod(f *testing.F) {
	f.Add(webPod())
	f.Add([]byte{0x0a, 0x00})
	f.Fuzz(func(t *testing.T, data []byte) {
		defer clock.Watch(t, len(data))()
		if s, _, _, err := decodePod(data); err == nil {
			checkSpecs(t, []*lifecycle.PodSpec{s})
		}
	})
}

// podsServer is a kubelet's Pods API on a real socket.
type podsServer struct {
	pods.UnimplementedPodsServer

	mu     sync.Mutex
	known  map[string][]byte
	events chan *pods.WatchPodsEvent
	gets   int
}

func (s *podsServer) GetPod(_ context.Context, r *pods.GetPodRequest) (*pods.GetPodResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gets++
	if p := s.known[r.GetPodUID()]; p != nil {
		return &pods.GetPodResponse{Pod: p}, nil
	}
	return nil, status.Error(codes.NotFound, "not found")
}

func (s *podsServer) WatchPods(_ *pods.WatchPodsRequest, stream grpc.ServerStreamingServer[pods.WatchPodsEvent]) error {
	s.mu.Lock()
	first := make([][]byte, 0, len(s.known))
	for _, p := range s.known {
		first = append(first, p)
	}
	s.mu.Unlock()
	for _, p := range first {
		if err := stream.Send(&pods.WatchPodsEvent{Type: pods.EventType_ADDED, Pod: p}); err != nil {
			return err
		}
	}
	if err := stream.Send(&pods.WatchPodsEvent{Type: pods.EventType_INITIAL_SYNC_COMPLETE}); err != nil {
		return err
	}
	for {
		select {
		case <-stream.Context().Done():
			return stream.Context().Err()
		case ev := <-s.events:
			if ev == nil { // as the kubelet disconnects a slow client
				return status.Error(codes.ResourceExhausted, "watch client channel closed")
			}
			if err := stream.Send(ev); err != nil {
				return err
			}
		}
	}
}

// servePods serves on a socket until the returned function is called.
func servePods(t *testing.T, socket string, s *podsServer) func() {
	t.Helper()
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	pods.RegisterPodsServer(g, s)
	var wg sync.WaitGroup
	wg.Go(func() { _ = g.Serve(l) })
	stop := sync.OnceFunc(func() {
		g.Stop()
		wg.Wait()
	})
	t.Cleanup(stop)
	return stop
}

func smallPod(uid, name string) []byte {
	return encoded(1, encoded(1, name, 3, "shop", 5, uid), 2, encoded(2, encoded(1, "app"), 10, "node1"))
}

// TestPodsAPI: the stream's pods and changes, a request for one pod, and a restart of the kubelet.
func TestPodsAPI(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "pods.sock")
	s := &podsServer{known: map[string][]byte{"u1": webPod(), "bad": {0xff}}, events: make(chan *pods.WatchPodsEvent)}
	stop := servePods(t, socket, s)
	var mu sync.Mutex
	var told []string
	l := run(t, Options{Sources: []SpecSource{NewPodsAPI(socket)}, Wait: 5 * time.Second, Changed: func(uids []string) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, uids...)
	}})
	heard := func(uid string) func() bool {
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			return slices.Contains(told, uid)
		}
	}
	l.AwaitFirst(t.Context())
	until(t, "the first pod is reported", heard("u1"))
	if st := l.States()[0]; !st.Up || st.Err == nil || !strings.Contains(st.Err.Error(), "1 pod cannot be read") {
		t.Errorf("one of the first pods cannot be read: %+v", st)
	}
	if d := cmp.Diff(webSpec(lifecycle.FromPodsAPI), l.Spec("u1")); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}

	s.mu.Lock()
	s.known["u2"] = smallPod("u2", "two")
	s.mu.Unlock()
	l.Await(t.Context(), &lifecycle.Pod{UID: "u2"})
	if got := l.Spec("u2"); got == nil || got.Name != "two" {
		t.Errorf("asked for: %+v", got)
	}
	l.Await(t.Context(), &lifecycle.Pod{UID: "nobody"})
	if l.Spec("nobody") != nil {
		t.Error("an unknown pod has a spec")
	}

	before := l.Spec("u1")
	s.events <- &pods.WatchPodsEvent{Type: pods.EventType_MODIFIED, Pod: webPod()} // for example its status
	s.events <- &pods.WatchPodsEvent{Type: pods.EventType_MODIFIED, Pod: []byte{0xff}}
	s.events <- &pods.WatchPodsEvent{Type: pods.EventType_ADDED, Pod: smallPod("u3", "three")}
	until(t, "an added pod is reported", heard("u3"))
	if l.Spec("u1") != before {
		t.Error("a spec that did not change was replaced")
	}
	if st := l.States()[0]; !st.Up || st.Err == nil {
		t.Errorf("a pod that cannot be read: %+v", st)
	}
	s.events <- &pods.WatchPodsEvent{Type: pods.EventType_DELETED, Pod: encoded(1, encoded(1, "three", 3, "shop", 5, "u3"))}
	until(t, "a pod's end is seen", func() bool { return l.Spec("u3") == nil })

	stop()
	until(t, "the kubelet's end is seen", func() bool { return !l.States()[0].Up })
	if l.Spec("u1") == nil || l.Spec("u2") == nil {
		t.Error("what was known is lost with the kubelet")
	}
	s.known = map[string][]byte{"u1": webPod(), "u4": smallPod("u4", "four")}
	servePods(t, socket, s)
	until(t, "the kubelet is found again", heard("u4"))
	until(t, "what ended meanwhile is forgotten", func() bool { return l.Spec("u2") == nil })
	s.events <- nil // the kubelet ends the stream
	until(t, "the stream is opened again", func() bool { return l.States()[0].Up })
}

// TestSpecsOfLateKubelet: a kubelet that starts after the agent creates pods at once. The first request about one asks
// it, without a pause after the last failure.
func TestSpecsOfLateKubelet(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "pods.sock")
	l := run(t, Options{Sources: []SpecSource{NewPodsAPI(socket)}, Wait: 30 * time.Second, Retry: time.Hour})
	l.AwaitFirst(t.Context())
	l.Await(t.Context(), &lifecycle.Pod{UID: "u1"})
	if l.Spec("u1") != nil || l.States()[0].Up {
		t.Fatalf("known without a kubelet: %+v", l.States())
	}
	servePods(t, socket, &podsServer{known: map[string][]byte{"u1": webPod()}, events: make(chan *pods.WatchPodsEvent)})
	if l.Await(t.Context(), &lifecycle.Pod{UID: "u1"}); l.Spec("u1") == nil {
		t.Errorf("the kubelet was not asked: %+v", l.States())
	}
}

// TestFirstRungWins: the Pods API is asked first; /pods is the fallback.
func TestFirstRungWins(t *testing.T) {
	k := serveKubelet(t)
	socket := filepath.Join(t.TempDir(), "pods.sock")
	ko := k.options(t)
	ko.Interval = 2 * time.Millisecond
	l := run(t, Options{Sources: []SpecSource{NewPodsAPI(socket), NewKubelet(ko)}})
	until(t, "/pods answers", func() bool { s := l.Spec("u1"); return s != nil && s.From == lifecycle.FromKubelet })
	s := &podsServer{known: map[string][]byte{"u1": webPod()}, events: make(chan *pods.WatchPodsEvent)}
	servePods(t, socket, s)
	until(t, "the Pods API answers", func() bool { return l.Spec("u1").From == lifecycle.FromPodsAPI })
	until(t, "/pods is not asked any more", func() bool { return errors.Is(l.States()[1].Err, errNotNeeded) })
}
