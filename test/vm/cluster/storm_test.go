package cluster_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/trimtab/trimtab/test/vm/controlplane"
)

// storm stands before an API server and answers every request with one status while it lasts.
type storm struct {
	kubeconfig string // reaches the API server through it, as the administrator
	asked      atomic.Int64
	status     atomic.Int64
	under      sync.Map // the ends of requests under way, watches above all
}

// reasons are those that an API server gives with a status.
var reasons = map[int]string{
	http.StatusConflict: "Conflict", http.StatusGone: "Expired", http.StatusTooManyRequests: "TooManyRequests", http.StatusForbidden: "Forbidden",
	http.StatusInternalServerError: "InternalError", http.StatusServiceUnavailable: "ServiceUnavailable", http.StatusGatewayTimeout: "Timeout",
}

func newStorm(t *testing.T, p *controlplane.Plane) *storm {
	t.Helper()
	target, err := url.Parse(p.URL)
	if err != nil {
		t.Fatal(err)
	}
	pass := httputil.NewSingleHostReverseProxy(target)
	if pass.Transport, err = rest.TransportFor(p.Config(controlplane.Admin)); err != nil {
		t.Fatal(err)
	}
	pass.FlushInterval = -1
	s := &storm{}
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.asked.Add(1)
		if code := int(s.status.Load()); code != 0 {
			if code == http.StatusTooManyRequests {
				w.Header().Set("Retry-After", "1")
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"message":"planned","code":%d}`, reasons[code], code)
			return
		}
		ctx, end := context.WithCancel(r.Context())
		s.under.Store(&end, end)
		defer s.under.Delete(&end)
		pass.ServeHTTP(w, r.WithContext(ctx))
	}))
	t.Cleanup(func() { proxy.CloseClientConnections(); proxy.Close() })
	k := clientcmdapi.NewConfig()
	k.Clusters["c"] = &clientcmdapi.Cluster{Server: proxy.URL}
	k.Contexts["x"] = &clientcmdapi.Context{Cluster: "c"}
	k.CurrentContext = "x"
	s.kubeconfig = filepath.Join(t.TempDir(), "proxy.kubeconfig")
	if err := clientcmd.WriteToFile(*k, s.kubeconfig); err != nil {
		t.Fatal(err)
	}
	return s
}

// begin answers with a status from now on, and ends what is under way.
func (s *storm) begin(code int) {
	s.status.Store(int64(code))
	s.under.Range(func(_, end any) bool { end.(context.CancelFunc)(); return true })
}

func (s *storm) end() { s.status.Store(0) }
