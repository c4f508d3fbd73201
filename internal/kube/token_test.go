package kube

import (
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
)

func tokenWith(claims string) string {
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln"
}

// TestWhyRefused: the times in a token explain its refusal.
func TestWhyRefused(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	for _, tc := range []struct{ token, want string }{
		{tokenWith(`{"exp":996400,"nbf":990000}`), "expired 1h0m0s ago"},
		{tokenWith(`{"exp":1000000}`), "expired 0s ago"},
		{tokenWith(`{"exp":1009000,"nbf":1003600}`), "becomes valid only in 1h0m0s"},
		{tokenWith(`{"exp":1009000,"iat":1000060}`), "becomes valid only in 1m0s"},
		{tokenWith(`{"exp":1009000,"nbf":999000}`), "has not expired"},
		{tokenWith(`{}`), "has not expired"},
		{tokenWith(`{"exp":"soon"}`), "cannot be read"},
		{"a.%.c", "cannot be read"},
		{"opaque", "not a service account token"},
		{"", "not a service account token"},
	} {
		if got := whyRefused(tc.token, now); !strings.Contains(got, tc.want) {
			t.Errorf("%q: %q, want %q", tc.token, got, tc.want)
		}
	}
}

// TestExplained: the token's file is read when the server refuses the token, and different clocks are
// reported; other errors stay unchanged.
func TestExplained(t *testing.T) {
	for _, tc := range []struct {
		ahead time.Duration
		want  string
	}{{time.Hour, "clock is 59m59s ahead of this node's"}, {-time.Hour, "clock is 1h0m0s behind this node's"}, {0, "expired"}} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Date", time.Now().Add(tc.ahead).UTC().Format(http.TimeFormat))
		}))
		defer server.Close()
		file := filepath.Join(t.TempDir(), "token")
		c := &rest.Config{Host: server.URL, BearerTokenFile: file}
		if err := os.WriteFile(file, []byte(tokenWith(`{"exp":1}`)+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		k := &Client{Log: slog.New(slog.DiscardHandler), token: tokenOf(c)}
		h, err := rest.HTTPClientFor(c)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := h.Get(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		k.RecordResult(apierrors.NewUnauthorized("Unauthorized"))
		got := fmt.Sprint(k.lastErr)
		if !strings.Contains(got, "refuses the agent's token, which expired") || !strings.Contains(strings.ReplaceAll(got, "1h0m0s ahead", "59m59s ahead"), tc.want) || !apierrors.IsUnauthorized(k.lastErr) {
			t.Errorf("%v ahead: %v", tc.ahead, got)
		}
		if tc.ahead == 0 && strings.Contains(got, "clock") {
			t.Errorf("clocks that agree are said: %s", got)
		}
		other := errors.New("no route")
		if k.RecordResult(other); !errors.Is(k.lastErr, other) || k.lastErr.Error() != other.Error() {
			t.Errorf("another error became %v", k.lastErr)
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		if k.RecordResult(apierrors.NewUnauthorized("Unauthorized")); !errors.Is(k.lastErr, os.ErrNotExist) {
			t.Errorf("without a file: %v", k.lastErr)
		}
	}
}
