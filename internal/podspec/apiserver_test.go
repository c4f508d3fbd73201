package podspec

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/test/clock"
)

// answers is an API server that returns these bodies, one per request, with status 200.
type answers struct{ bodies []string }

func (a *answers) RoundTrip(*http.Request) (*http.Response, error) {
	if len(a.bodies) == 0 {
		return nil, errors.New("nothing more to say")
	}
	body := a.bodies[0]
	a.bodies = a.bodies[1:]
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(body))}, nil
}

// told replays the bodies and returns the reported changes, one word for each, and the final error.
func told(t testing.TB, bodies ...string) ([]string, error) {
	t.Helper()
	a := NewAPIServer(APIServerOptions{URL: "http://127.0.0.1", Client: &http.Client{Transport: &answers{bodies}}, Node: "node1"})
	var all []string
	err := a.Watch(t.Context(), func(u Update) {
		switch {
		case u.Full:
			all = append(all, "all")
		case u.EndedUID != "":
			all = append(all, "gone "+u.EndedUID)
		}
		for _, bad := range u.Unread {
			all = append(all, "unread "+bad.UID)
		}
		for uid, s := range u.All {
			if s.UID != uid || s.From != lifecycle.FromAPIServer {
				t.Errorf("%s: %+v", uid, s)
			}
			all = append(all, uid)
		}
	})
	return all, err
}

const emptyList = `{"kind":"PodList","metadata":{"resourceVersion":"7"},"items":[]}`

func podText(uid, more string) string {
	return `{"metadata":{"name":"web","namespace":"shop","uid":"` + uid + `","resourceVersion":"9"` + more + `},"spec":{"containers":[{"name":"app"}]}}`
}

// TestWatch: events are reported in order, a watch that is too old starts again with a list, and a pod that
// cannot be read is reported separately.
func TestWatch(t *testing.T) {
	t.Parallel()
	events := strings.Join([]string{
		`{"type":"ADDED","object":` + podText("u1", "") + `}`,
		`{"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"12"}}}`,
		`{"type":"MODIFIED","object":{"metadata":{"name":"web","namespace":"shop","uid":"u2"},"spec":{"containers":7}}}`,
		`{"type":"DELETED","object":` + podText("u1", "") + `}`,
		`{"type":"ERROR","object":{"kind":"Status","code":410,"message":"too old resource version"}}`,
	}, "\n")
	got, err := told(t, emptyList, events, emptyList, `{"type":"ERROR","object":{"code":500,"message":"etcd is away"}}`)
	want := []string{"all", "u1", "unread u2", "gone u1", "all"}
	if !slices.Equal(got, want) || err == nil || !strings.Contains(err.Error(), "500 etcd is away") {
		t.Errorf("reported %q, %v; want %q", got, err, want)
	}
}

// TestMirror: a static pod's object counts with the UID that the runtime knows, and no user can take the
// UID of a pod that the API server created.
func TestMirror(t *testing.T) {
	t.Parallel()
	for annotation, want := range map[string]string{
		"0123456789abcdef0123456789abcdef":     "0123456789abcdef0123456789abcdef",
		"123e4567-e89b-12d3-a456-426614174000": "u1",
		"":                                     "u1", "short": "u1", strings.Repeat("x", 32): "u1",
	} {
		got, _ := told(t, emptyList, `{"type":"ADDED","object":`+podText("u1", `,"annotations":{"kubernetes.io/config.mirror":"`+annotation+`"}`)+`}`)
		if !slices.Equal(got, []string{"all", want}) {
			t.Errorf("%q: reported %q, want %s", annotation, got, want)
		}
	}
}

// TestGetLater: a caller that waits in vain leaves no state behind.
func TestGetLater(t *testing.T) {
	t.Parallel()
	a := NewAPIServer(APIServerOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.Get(ctx, "u1"); !errors.Is(err, ErrNotReportedYet) || len(a.waiting) != 0 {
		t.Errorf("%v, %d wait", err, len(a.waiting))
	}
}

func FuzzWatch(f *testing.F) {
	f.Add(`{"type":"ADDED","object":` + podText("u1", "") + `}`)
	f.Add(`{"type":"ERROR","object":{"code":410}}`)
	f.Add(`{"type":"DELETED","object":{"metadata":{"uid":"u1"}}}{"type":`)
	f.Fuzz(func(t *testing.T, text string) {
		clock.Bound(t, len(text), func() {
			if _, err := told(t, emptyList, text); err == nil {
				t.Error("it ended without a reason")
			}
		})
	})
}
