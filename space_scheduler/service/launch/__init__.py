"""The service's rules, pure: launches and their orders, what nodes report, who shares; ``ServiceCore`` holds them."""
