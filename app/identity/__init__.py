"""Identity: who asks, the authentication middleware, the deny-by-default guard, and the two protocols behind them."""
