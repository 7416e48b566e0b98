package bucket_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/rewind-kafka/rewind/internal/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, storetest.Leaks()...) }

func TestStores(t *testing.T) { storetest.Each(t, storetest.Suite) }
