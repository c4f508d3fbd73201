package podspec

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/test/clock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// onePod is a pod of /pods, including fields that are not read.
const onePod = `{"metadata":{"name":"web","namespace":"shop","uid":"u1","creationTimestamp":null,"labels":{"a":"b","volcano.sh/preemptable":"true"},"annotations":{"c":"d","volcano.sh/quota-burst-time":"2000"}},
"spec":{"nodeName":"node1","volumes":[{"name":"x","emptyDir":{}}],"runtimeClassName":"kata",
 "initContainers":[
  {"name":"proxy","image":"p","restartPolicy":"Always","resources":{"requests":{"cpu":"100m"}}},
  {"name":"setup","image":"s","resources":{"limits":{"cpu":"1.5","memory":"1Gi"}}}],
 "containers":[{"name":"app","image":"a","resources":{"requests":{"cpu":2,"kubernetes.io/batch-cpu":"4k"},"limits":{"memory":"0.5Gi"}}}],
 "ephemeralContainers":[{"name":"debug","targetContainerName":"app","resources":{}}],
 "overhead":{"cpu":"250m","memory":"128Mi"},
 "resources":{"requests":{"cpu":"3"},"limits":{"memory":"2G"}}},
"status":{"phase":"Running","qosClass":"Burstable"}}`

func listOf(pods ...string) string {
	return `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[` + strings.Join(pods, ",") + `]}`
}

func webSpec(from lifecycle.Source) *lifecycle.PodSpec {
	return &lifecycle.PodSpec{
		UID: "u1", Namespace: "shop", Name: "web", Node: "node1", QoS: "Burstable", From: from,
		Meta: &lifecycle.PodMeta{HasAllKeys: true,
			Labels:      map[string]string{"volcano.sh/preemptable": "true"},
			Annotations: map[string]string{"volcano.sh/quota-burst-time": "2000"},
		},
		Containers: []lifecycle.ContainerSpec{
			{Name: "proxy", Kind: lifecycle.Sidecar, Requests: lifecycle.Amounts{"cpu": 100}},
			{Name: "setup", Kind: lifecycle.Init, Limits: lifecycle.Amounts{"cpu": 1500, "memory": 1 << 30}},
			{Name: "app", Requests: lifecycle.Amounts{"cpu": 2000, "kubernetes.io/batch-cpu": 4000}, Limits: lifecycle.Amounts{"memory": 1 << 29}},
			{Name: "debug", Kind: lifecycle.Ephemeral},
		},
		Overhead: lifecycle.Amounts{"cpu": 250, "memory": 128 << 20},
		Requests: lifecycle.Amounts{"cpu": 3000}, Limits: lifecycle.Amounts{"memory": 2e9},
	}
}

func TestDecodeList(t *testing.T) {
	list, err := decodeList(strings.NewReader(listOf(onePod)), lifecycle.FromKubelet)
	got, unread := list.pods, list.unread
	if err != nil || unread != nil {
		t.Fatal(err, unread)
	}
	if d := cmp.Diff([]*lifecycle.PodSpec{webSpec(lifecycle.FromKubelet)}, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestBadLists: each list gives an error that names the problem.
func TestBadLists(t *testing.T) {
	pod := func(uid, node, more string) string {
		return fmt.Sprintf(`{"metadata":{"name":"n%s","namespace":"s","uid":%q},"spec":{"nodeName":%q,"containers":[{"name":"a"}]%s}}`, uid, uid, node, more)
	}
	for text, want := range map[string]string{
		``:                               "EOF",
		`{"kind":"PodList","items":[`:    "EOF",
		`[]`:                             "has [ in place of {",
		`{"kind":"NodeList","items":[]}`: "has the kind \"NodeList\", want PodList",
		`{"kind":"PodList"}`:             "has no field items",
		`{"kind":"PodList","items":{}}`:  "not a list",
		listOf() + "x":                   "text after the end",
		listOf(pod("1", "n", ""), pod("2", "m", "")):                               "the source has pods of node",
		listOf(strings.Repeat(pod("1", "n", "")+",", maxPods) + pod("1", "n", "")): "more than",
	} {
		list, err := decodeList(strings.NewReader(text), lifecycle.FromKubelet)
		specs := list.pods
		if err == nil {
			_, _, err = indexByUID(specs, "")
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want %q", text, err, want)
		}
	}
	list, err := decodeList(strings.NewReader(listOf(onePod)), lifecycle.FromKubelet)
	specs := list.pods
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := indexByUID(specs, "other"); err == nil {
		t.Error("pods of another node than the configured one are believed")
	}
}

// TestBadPods: a pod that cannot be read is reported separately, and the rest of its list is read.
func TestBadPods(t *testing.T) {
	pod := func(uid, more string) string {
		return fmt.Sprintf(`{"metadata":{"name":"n%s","namespace":"s","uid":%q},"spec":{"nodeName":"node1","containers":[{"name":"a"}]%s}}`, uid, uid, more)
	}
	for text, want := range map[string]string{
		pod("", ""): "has no name, namespace or UID",
		pod("1", `,"initContainers":[{"name":"a"}]`):                           "name of another",
		pod("1", `,"overhead":{"cpu":"lots"}`):                                 "is not a quantity",
		pod("1", `,"overhead":{"memory":"99999999999E"}`):                      "is above",
		pod("1", `,"nodeName":7`):                                              "want a text, got a number",
		`{"metadata":{"uid":"1"},"spec":{"containers":"none"}}`:                "want a list, got a text",
		pod("1", "") + "," + pod("1", ""):                                      "two pods have the UID",
		pod("2", `,"overhead":[]`) + "," + pod("1", `,"overhead":{"cpu":"x"}`): "want a mapping of keys, got a list",
	} {
		list, err := decodeList(strings.NewReader(listOf(text, onePod)), lifecycle.FromKubelet)
		specs, unread := list.pods, list.unread
		if err != nil {
			t.Errorf("%.60s: %v", text, err)
			continue
		}
		all, twice, err := indexByUID(specs, "")
		if unread = append(unread, twice...); err != nil || len(all) != 1 || all["u1"] == nil {
			t.Errorf("%.60s: %v, %v", text, all, err)
		}
		if err := unreadError(unread); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want %q", text, err, want)
		}
	}
}

// TestOneBadPod: what is known of a pod that cannot be read any more stays, all others are reported, the
// reason is shown while it lasts, and the pod is read when that is possible again.
func TestOneBadPod(t *testing.T) {
	s := serveKubelet(t)
	o := s.options(t)
	o.Interval = 2 * time.Millisecond
	l := run(t, Options{Sources: []SpecSource{NewKubelet(o)}})
	l.AwaitFirst(t.Context())
	absurd := strings.Replace(onePod, `"cpu":"250m"`, `"cpu":"9e99"`, 1)
	other := `{"metadata":{"name":"other","namespace":"shop","uid":"u2"},"spec":{"nodeName":"node1","containers":[{"name":"a"}]}}`
	s.say(200, listOf(absurd, other))
	until(t, "the other pod is reported", func() bool { return l.Spec("u2") != nil })
	if st := l.States()[0]; l.Spec("u1") == nil || !st.Up || st.Err == nil || !strings.Contains(st.Err.Error(), "shop/web") {
		t.Errorf("%+v, %+v", l.Spec("u1"), st)
	}
	nameless := strings.Replace(absurd, `"uid":"u1"`, `"uid":""`, 1)
	s.say(200, listOf(nameless))
	until(t, "it is asked again", func() bool { return strings.Contains(fmt.Sprint(l.States()[0].Err), "1 pod") && l.Spec("u2") != nil })
	s.say(200, listOf(onePod))
	until(t, "all is read", func() bool { return l.States()[0].Err == nil && l.Spec("u2") == nil && l.Spec("u1") != nil })
	s.say(200, listOf(onePod, onePod))
	until(t, "neither is believed", func() bool { return strings.Contains(fmt.Sprint(l.States()[0].Err), "two pods") })
	if l.Spec("u1") == nil {
		t.Error("what was known is lost")
	}
}

// TestOneBadMemory: one stored pod that cannot be read does not affect the others.
func TestOneBadMemory(t *testing.T) {
	known, err := loadSpecs([]byte(`{"v":1,"pods":[{"UID":7},null,{"UID":"u1","Name":"web","Namespace":"shop"}]}`))
	if err == nil || known["u1"] == nil || !known["u1"].FromStateFile || len(known) != 1 {
		t.Errorf("%v, %v", known, err)
	}
	granted, err := loadGrants([]byte(`{"v":1,"pods":[{"uid":7},{"uid":"u","namespace":"n","name":"p","containers":{"a":{"cpus":[-1]}}},
		{"uid":"u1","namespace":"shop","name":"web","containers":{"a":{"cpus":[2],"told":true}}}]}`))
	if err == nil || len(granted) != 1 || granted["u1"] == nil || !slices.Equal(granted["u1"].Static["a"].CPUs, []int{2}) {
		t.Errorf("%v, %v", granted, err)
	}
}

// kubeletServer is a kubelet's /pods with TLS and a token.
type kubeletServer struct {
	*httptest.Server

	mu    sync.Mutex
	text  string
	code  int
	hold  chan struct{}
	asked int
}

func serveKubelet(t *testing.T) *kubeletServer {
	t.Helper()
	s := &kubeletServer{text: listOf(onePod), code: http.StatusOK}
	s.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		text, code, hold := s.text, s.code, s.hold
		s.asked++
		s.mu.Unlock()
		if hold != nil {
			select {
			case <-hold:
			case <-r.Context().Done():
				return
			}
		}
		switch {
		case r.Header.Get("Authorization") != "Bearer secret":
			w.WriteHeader(http.StatusUnauthorized)
		case r.URL.Path != "/pods":
			w.WriteHeader(http.StatusNotFound)
		default:
			w.WriteHeader(code)
			_, _ = w.Write([]byte(text))
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *kubeletServer) say(code int, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.code, s.text = code, text
}

func (s *kubeletServer) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func (s *kubeletServer) options(t *testing.T) KubeletOptions {
	t.Helper()
	return KubeletOptions{
		URL: s.URL, TokenFile: write(t, "token", "secret\n"), CAFile: write(t, "ca", pemOf(s.Certificate().Raw)),
		ServerName: "example.com", Interval: time.Hour,
	}
}

// TestKubeletAnswers: the errors for a kubelet's refusals and unexpected answers.
func TestKubeletAnswers(t *testing.T) {
	s := serveKubelet(t)
	for _, c := range []struct {
		name   string
		code   int
		text   string
		change func(*KubeletOptions)
		want   string // a part of the error; "" for none
	}{
		{"good", 200, listOf(onePod), nil, ""},
		{"no token", 200, listOf(onePod), func(o *KubeletOptions) { o.TokenFile = "" }, "podspec.kubelet.tokenFile"},
		{"no such token", 200, listOf(onePod), func(o *KubeletOptions) { o.TokenFile = "/nonexistent" }, "podspec.kubelet.tokenFile"},
		{"unknown certificate", 200, listOf(onePod), func(o *KubeletOptions) { o.CAFile = "" }, "certificate"},
		{"wrong name", 200, listOf(onePod), func(o *KubeletOptions) { o.ServerName = "elsewhere" }, "certificate"},
		{"no certificate in the file", 200, listOf(onePod), func(o *KubeletOptions) { o.CAFile = o.TokenFile }, "holds no certificate"},
		{"any certificate", 200, listOf(onePod), func(o *KubeletOptions) { o.CAFile, o.SkipVerify = "", true }, ""},
		{"forbidden", 403, "", nil, "nodes/pods"},
		{"redirect", 302, "", nil, "302"},
		{"broken", 200, listOf(onePod)[:200], nil, "EOF"},
		{"another node", 200, listOf(onePod), func(o *KubeletOptions) { o.Node = "other" }, "the source has pods of node"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s.say(c.code, c.text)
			o := s.options(t)
			if c.change != nil {
				c.change(&o)
			}
			k := NewKubelet(o)
			defer func() { _ = k.Close() }()
			u, err := k.Get(t.Context(), "u1")
			if c.want == "" && (err != nil || u.All["u1"] == nil) || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v, %v, want %q", u.All, err, c.want)
			}
		})
	}
}

// TestTokenStaysHome: no token is sent over an unencrypted connection.
func TestTokenStaysHome(t *testing.T) {
	var got string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Header.Get("Authorization")
		_, _ = w.Write([]byte(listOf(onePod)))
	}))
	defer s.Close()
	k := NewKubelet(KubeletOptions{URL: s.URL, TokenFile: write(t, "token", "secret")})
	defer func() { _ = k.Close() }()
	if _, err := k.Get(t.Context(), "u1"); err != nil || got != "" {
		t.Errorf("%v; the token was sent: %q", err, got)
	}
}

// run runs a chain until the test ends.
func run(t *testing.T, o Options) *Chain {
	t.Helper()
	if o.Retry == 0 {
		o.Retry = 5 * time.Millisecond
	}
	l := New(o)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- l.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return l
}

// until waits for a condition.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	late := time.After(time.Minute)
	for !ok() {
		select {
		case <-look.C:
		case <-late:
			t.Fatalf("not so in time: %s", what)
		}
	}
}

// TestBadAnswerLosesNothing: the known specs stay, and State has the reason.
func TestBadAnswerLosesNothing(t *testing.T) {
	s := serveKubelet(t)
	o := s.options(t)
	o.Interval = 2 * time.Millisecond
	l := run(t, Options{Sources: []SpecSource{NewKubelet(o)}})
	l.AwaitFirst(t.Context())
	if d := cmp.Diff(webSpec(lifecycle.FromKubelet), l.Spec("u1")); d != "" {
		t.Fatalf("(-want +got):\n%s", d)
	}
	for _, text := range []string{"{", listOf(onePod) + "x", `{"kind":"Status"}`, ""} {
		s.say(200, text)
		until(t, "the answer is refused", func() bool { return !l.States()[0].Up })
		if l.Spec("u1") == nil || l.States()[0].Err == nil {
			t.Errorf("%q: %+v, %v", text, l.Spec("u1"), l.States())
		}
		s.say(200, listOf(onePod))
		until(t, "it is asked again", func() bool { return l.States()[0].Up })
	}
	s.say(200, listOf())
	until(t, "the pod's end is seen", func() bool { return l.Spec("u1") == nil })
}

// TestAwaitIsBounded: a kubelet that does not answer delays only up to the bound, and only once.
func TestAwaitIsBounded(t *testing.T) {
	s := serveKubelet(t)
	const wait = 300 * time.Millisecond
	l := run(t, Options{Sources: []SpecSource{NewKubelet(s.options(t))}, Wait: wait})
	l.AwaitFirst(t.Context())
	s.mu.Lock()
	s.hold = make(chan struct{})
	s.mu.Unlock()
	defer close(s.hold)
	await := func() time.Duration {
		start := time.Now()
		l.Await(t.Context(), &lifecycle.Pod{UID: "u2", Name: "new"})
		return time.Since(start)
	}
	until(t, "Await waits for the whole time", func() bool { return await() >= wait }) // before that it may be too early to ask
	if took := await(); took > wait/2 {
		t.Errorf("the next waited %v, too", took)
	}
}

// TestAwaitWithoutAnybody returns at once: no source is up.
func TestAwaitWithoutAnybody(t *testing.T) {
	l := run(t, Options{Sources: []SpecSource{NewPodsAPI("/nonexistent/pods-api.sock")}, Wait: time.Hour})
	l.AwaitFirst(t.Context())
	l.Await(t.Context(), &lifecycle.Pod{UID: "u1"})
	if st := l.States(); st[0].Up || !strings.Contains(st[0].Err.Error(), "feature gate PodsAPI") {
		t.Errorf("%+v", st)
	}
}

// TestSharedQuestions: many callers that wait at the same time cause only few requests.
func TestSharedQuestions(t *testing.T) {
	s := serveKubelet(t)
	k := NewKubelet(s.options(t))
	defer func() { _ = k.Close() }()
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if _, err := k.Get(t.Context(), "u1"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := s.count(); n > 10 {
		t.Errorf("asked %d times", n)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Microsecond)
	defer cancel()
	if _, err := k.Get(ctx, "u1"); !errors.Is(err, ErrNotReportedYet) && !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

// TestRemembered: the specs that an earlier chain saved are known before any source answers, are marked,
// and are dropped at the first answer without them.
func TestRemembered(t *testing.T) {
	s := serveKubelet(t)
	var mu sync.Mutex
	var kept []byte
	save := func(b []byte) error {
		mu.Lock()
		defer mu.Unlock()
		kept = b
		return nil
	}
	func() {
		l := New(Options{Sources: []SpecSource{NewKubelet(s.options(t))}, Save: save})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- l.Run(ctx) }()
		l.AwaitFirst(ctx)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	if !json.Valid(kept) {
		t.Fatalf("kept %q", kept)
	}
	var told []string
	l := New(Options{Saved: kept, Sources: []SpecSource{NewKubelet(s.options(t))}, Changed: func(uids []string) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, uids...)
	}})
	want := webSpec(lifecycle.FromKubelet)
	want.FromStateFile = true
	if d := cmp.Diff(want, l.Spec("u1")); d != "" {
		t.Fatalf("(-want +got):\n%s", d)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- l.Run(ctx) }()
	until(t, "the pod is reported again", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(told) == 1
	})
	if l.Spec("u1").FromStateFile {
		t.Error("the spec is still marked as saved after the source reported it")
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"{", `{"v":9}`, `{"v":1,"pods":[null]}`} {
		if l := New(Options{Saved: []byte(bad)}); l.Spec("u1") != nil {
			t.Errorf("%s is believed", bad)
		}
	}
}

func FuzzDecodeList(f *testing.F) {
	f.Add(listOf(onePod))
	f.Add(listOf())
	f.Add(`{"kind":"PodList","items":null}`)
	f.Add(listOf(strings.TrimSuffix(strings.Repeat(onePod+",", 300), ",")))
	f.Add(strings.Repeat("[", 200_000))
	f.Fuzz(func(t *testing.T, text string) {
		defer clock.Watch(t, len(text))()
		list, err := decodeList(strings.NewReader(text), lifecycle.FromKubelet)
		specs := list.pods
		if err == nil {
			checkSpecs(t, specs)
		}
	})
}

// checkSpecs checks what holds for every spec.
func checkSpecs(t *testing.T, specs []*lifecycle.PodSpec) {
	t.Helper()
	for _, s := range specs {
		if s.UID == "" || s.Name == "" || s.Namespace == "" || len(s.Containers) > maxContainers {
			t.Errorf("%+v", s)
		}
		last, seen := lifecycle.Init, map[string]bool{}
		rank := map[lifecycle.ContainerKind]int{lifecycle.Init: 0, lifecycle.Sidecar: 0, lifecycle.App: 1, lifecycle.Ephemeral: 2}
		for _, c := range s.Containers {
			if seen[c.Name] || rank[c.Kind] < rank[last] {
				t.Errorf("%+v", s.Containers)
			}
			seen[c.Name], last = true, c.Kind
		}
	}
}

// TestLateAnswer: an answer that was sent before its pod ended does not restore the pod, because nothing
// would end it again; a complete list is always used.
func TestLateAnswer(t *testing.T) {
	l := New(Options{Sources: []SpecSource{NewKubelet(KubeletOptions{})}})
	r := l.sources[0]
	for n := range 3 * maxEndedPods {
		uid := fmt.Sprint("u-", n)
		told := map[string]*lifecycle.PodSpec{uid: {UID: uid}}
		l.apply(r, Update{All: told})
		l.apply(r, Update{EndedUID: uid})
		l.apply(r, Update{All: told})
	}
	if len(r.pods) != 0 || len(l.changedUIDs) != 0 || len(l.endedPods.uids) != maxEndedPods {
		t.Errorf("%d specs and %d changes of pods that ended are kept; %d UIDs are remembered", len(r.pods), len(l.changedUIDs), len(l.endedPods.uids))
	}
	l.apply(r, Update{All: map[string]*lifecycle.PodSpec{"u-1": {UID: "u-1"}}, Full: true})
	if l.Spec("u-1") == nil {
		t.Error("a pod of a whole list is not known")
	}
}
