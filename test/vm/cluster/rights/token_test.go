package rights

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/trimtab/trimtab/internal/kube"
	"github.com/trimtab/trimtab/internal/kube/condition"
	"github.com/trimtab/trimtab/internal/kube/events"
	"github.com/trimtab/trimtab/internal/kube/publish"
	"github.com/trimtab/trimtab/test/vm/controlplane"
)

// shifted returns a token with times that are shifted by a duration, signed with the API server's key.
func shifted(t *testing.T, p *controlplane.Plane, token string, by time.Duration) string {
	t.Helper()
	parts := strings.Split(token, ".")
	data, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	claims := map[string]any{}
	if err := d.Decode(&claims); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"exp", "nbf", "iat"} {
		at, err := claims[name].(json.Number).Int64()
		if err != nil {
			t.Fatal(err)
		}
		claims[name] = at + int64(by/time.Second)
	}
	if data, err = json.Marshal(claims); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(p.Dir, "sa.key"))
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	key, err := x509.ParsePKCS1PrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	signed := parts[0] + "." + base64.RawURLEncoding.EncodeToString(data)
	sum := sha256.Sum256([]byte(signed))
	signature, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	return signed + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// log is a log that is safe for concurrent use.
type log struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *log) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}

// TestTokenOutsideItsTimes: with an expired token, or one that is not valid yet, reports fail and the log explains that
// once. The agent retries with growing pauses, and works again once the file has a valid token.
func TestTokenOutsideItsTimes(t *testing.T) {
	p := plane(t)
	good := token(t, p, "Pod", "agent-n1")
	for _, tc := range []struct {
		name string
		by   time.Duration
		want string
	}{{"expired", -2 * time.Hour, "which expired 1h"}, {"not yet valid", 2 * time.Hour, "which becomes valid only in 1h"}} {
		t.Run(tc.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "token")
			put := func(text string) {
				t.Helper()
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			put(shifted(t, p, good, tc.by))
			path := p.Kubeconfig("skewed", "")
			k, err := clientcmd.LoadFromFile(path)
			if err != nil {
				t.Fatal(err)
			}
			k.AuthInfos["u"].TokenFile = file
			if err := clientcmd.WriteToFile(*k, path); err != nil {
				t.Fatal(err)
			}
			var said log
			client, err := kube.Connect(kube.Options{Kubeconfig: path, Node: "n1", Namespace: namespace, Log: slog.New(slog.NewTextHandler(&said, nil))})
			if err != nil {
				t.Fatal(err)
			}
			services := everything(client, tc.name)
			run(t, func(ctx context.Context) { kube.Run(ctx, services...) })
			p.Wait("each part has failed", func(context.Context) error {
				s := client.Status(services...)
				for _, row := range s.Parts {
					if row.Error == "" || row.Failed < 2 && row.Name != "Events" { // the failures of Events are lost events
						return fmt.Errorf("%+v", row)
					}
				}
				if !strings.Contains(s.Error, tc.want) {
					return fmt.Errorf("the status is %q", s.Error)
				}
				return nil
			})
			if n := said.count("until the server accepts a token"); n != 1 {
				t.Errorf("it is logged %d times", n)
			}
			if tc.by > 0 {
				return // client-go reads the file again only after a minute, so the test waits once for all parts
			}
			put(good)
			p.Wait("each part works", func(context.Context) error {
				s := client.Status(services...)
				for _, row := range s.Parts {
					if row.Written == 0 || row.Error != "" {
						return fmt.Errorf("%+v", row)
					}
				}
				if s.Error != "" {
					return errors.New(s.Error)
				}
				return nil
			})
		})
	}
}

// everything returns the parts of an agent that write: events, the condition and a report.
func everything(client *kube.Client, text string) []kube.Service {
	to := events.NewRecorder(client)
	to.Warn(events.About{Kind: "Pod", Namespace: "default", Name: "app-n1", UID: "u"}, events.HookFailed, text)
	keeps := condition.New(client, func() condition.State {
		return condition.State{Status: "True", Reason: condition.Ready, Message: text}
	}, condition.Timing{Poll: 20 * time.Millisecond, MaxStartWait: time.Millisecond, MaxChangeWait: time.Millisecond, Heartbeat: time.Hour})
	report := publish.New(client, publish.Report{
		Kind: "NodeMetric", Resource: schema.GroupVersionResource{Group: "slo.koordinator.sh", Version: "v1alpha1", Resource: "nodemetrics"},
		Key: "status.nodeMetric", HasStatusSubresource: true, Ready: func() error { return nil }, Changed: func() <-chan struct{} { return nil },
		Make: func() (map[string]string, map[string]any) {
			return nil, map[string]any{"status": map[string]any{"nodeMetric": map[string]any{"text": text}}}
		},
	}, publish.Pace{Spread: time.Millisecond, MinInterval: time.Millisecond, CheckInterval: time.Second, Retry: 20 * time.Millisecond})
	return []kube.Service{to, keeps, report}
}
