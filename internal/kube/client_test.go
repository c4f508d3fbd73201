package kube

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestNote: if the server refuses a request of one service, the server still counts as reached; if it
// refuses the token, it does not, because then nothing works.
func TestNote(t *testing.T) {
	nodes := schema.GroupResource{Resource: "nodes"}
	for name, tt := range map[string]struct {
		err     error
		reached bool
	}{
		"done":         {nil, true},
		"not found":    {apierrors.NewNotFound(nodes, "n1"), true},
		"forbidden":    {fmt.Errorf("write: %w", apierrors.NewForbidden(nodes, "n1", errors.New("no"))), true},
		"conflict":     {apierrors.NewConflict(nodes, "n1", errors.New("old")), true},
		"expired":      {apierrors.NewResourceExpired("too old"), true},
		"overloaded":   {apierrors.NewTooManyRequests("later", 1), true},
		"unknown user": {apierrors.NewUnauthorized("expired"), false},
		"broken":       {apierrors.NewInternalError(errors.New("etcd")), false},
		"unavailable":  {apierrors.NewServiceUnavailable("starting"), false},
		"nobody there": {errors.New("connection refused"), false},
	} {
		c := &Client{lastErr: errors.New("not asked yet"), Log: slog.New(slog.DiscardHandler)}
		c.RecordResult(tt.err)
		if at, err := c.State(); (err == nil) != tt.reached || at.IsZero() == tt.reached {
			t.Errorf("%s: reached %v, %v", name, at, err)
		}
	}
}
