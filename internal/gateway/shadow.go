package gateway

import (
	"github.com/rewind-kafka/rewind/internal/clientconn"
	"github.com/rewind-kafka/rewind/internal/wire"
)

type shadows struct{}

func (c *conn) shadow(req wire.RequestHeader, a *clientconn.Answer) {}
